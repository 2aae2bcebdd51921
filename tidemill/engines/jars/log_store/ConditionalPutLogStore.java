package io.tidemill.delta;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.CreateFileOptionKeys;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.AWSServiceIOException;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;

/**
 * A LogStore for Delta tables on S3 that several drivers write: a commit is one conditional PUT.
 *
 * <p>The store decides who wins a version ({@code If-None-Match: *}). The inherited LogStore asks whether the file
 * exists and then writes it, under a lock of its own JVM: of two drivers that commit the same version, both succeed and
 * one commit is lost (delta-io/delta 3596 and 4813).
 *
 * <p>Set it with {@code spark.delta.logStore.s3a.impl} and {@code spark.delta.logStore.s3.impl}. It needs hadoop-aws
 * 3.4.2 or newer. If {@code fs.s3a.create.conditional.enabled} is false, each commit fails with "Conditional Writes
 * Unavailable" ({@code S3AFileSystem.innerCreateFile}) and nothing is written. Listing, reading and overwriting are
 * inherited, and so is {@code isPartialWriteVisible}, which is false: an object appears when its PUT is complete.
 */
public class ConditionalPutLogStore extends S3SingleDriverLogStore {
  private static final int CONFLICT = 409;
  private static final int ATTEMPTS = 5;

  /** Create the store; Delta calls this constructor by reflection. */
  public ConditionalPutLogStore(Configuration hadoopConf) {
    super(hadoopConf);
  }

  /**
   * Write a file, and fail if a file of that name exists and must not be overwritten.
   *
   * <p>S3 answers 412 if the name exists. It answers 409 if another request for the name is in progress; then the name
   * may not exist afterwards, and AWS says to send the request once more ("Conditional writes" in its user guide).
   *
   * <p>The AWS SDK and s3a send a PUT again if they do not receive its answer. The second request meets the file that
   * the first one wrote, so a file with these bytes is this commit. Another writer has other bytes: each commit has a
   * {@code txnId} in its {@code commitInfo}, and a random name for each file that it adds.
   *
   * @throws FileAlreadyExistsException if another writer was first, as {@code LogStore.write} demands.
   */
  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
      throws IOException {
    if (overwrite) {
      super.write(path, actions, true, hadoopConf);
      return;
    }
    FileSystem fs = path.getFileSystem(hadoopConf);
    byte[] commit = encode(actions);
    for (int attempt = 1; ; attempt++) {
      try {
        putIfAbsent(fs, path, commit);
        return;
      } catch (IOException refusal) {
        byte[] present = isRefused(refusal) ? readIfPresent(fs, path) : null;
        if (Arrays.equals(present, commit)) {
          return;
        }
        if (present != null) {
          throw (IOException) new FileAlreadyExistsException(path.toString()).initCause(refusal);
        }
        if (!isRefused(refusal) || attempt == ATTEMPTS) {
          throw refusal;
        }
      }
    }
  }

  private static byte[] encode(Iterator<String> actions) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    while (actions.hasNext()) {
      bytes.writeBytes((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
    }
    return bytes.toByteArray();
  }

  /**
   * Write a file that must not exist.
   *
   * <p>{@code must} makes a file system that does not know the option refuse it; {@code overwrite(true)} makes s3a send
   * no requests of its own that look for the file. A stream that failed is aborted and not closed: {@code close} is
   * what publishes the file.
   */
  private static void putIfAbsent(FileSystem fs, Path path, byte[] content) throws IOException {
    FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(path);
    FSDataOutputStream stream =
        builder
            .overwrite(true)
            .recursive()
            .must(CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true)
            .build();
    try {
      stream.write(content);
    } catch (IOException | RuntimeException failure) {
      stream.abort();
      throw failure;
    }
    stream.close();
  }

  /** Return whether S3 refused a PUT: s3a translates 412 to the one and 409 to the other ({@code S3AUtils}). */
  private static boolean isRefused(IOException failure) {
    return failure instanceof RemoteFileChangedException
        || failure instanceof AWSServiceIOException service && service.statusCode() == CONFLICT;
  }

  private static byte[] readIfPresent(FileSystem fs, Path path) throws IOException {
    try (FSDataInputStream stream = fs.open(path)) {
      return stream.readAllBytes();
    } catch (FileNotFoundException absent) {
      return null;
    }
  }
}
