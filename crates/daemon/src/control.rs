//! Messages between a process and its children: one JSON object per line, over the child's stdin
//! and stdout.
//!
//! A child ends within two seconds after its stdin closes, whatever its threads are doing, so that
//! no descendant outlives the parent.

use std::io::{self, BufRead, Read, Write};
use std::process;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Messages of the parent process.
#[derive(Debug)]
pub struct ParentPipe<T> {
    messages: Receiver<T>,
}

impl<T: DeserializeOwned + Send + 'static> ParentPipe<T> {
    /// Starts the thread that reads stdin.
    ///
    /// After the end of stdin or a malformed line, [`next`](Self::next) returns an error, and the
    /// process is ended [`GRACE`] later. It is ended at once if [`MESSAGES_MAX`] messages are
    /// queued and another arrives, since a process that reads none would not notice the end of
    /// stdin either.
    ///
    /// # Errors
    ///
    /// The system's, if no thread can be started.
    pub fn open() -> io::Result<Self> {
        let (sender, messages) = mpsc::sync_channel(MESSAGES_MAX);
        spawn("stdin", move || {
            let end = forward(&mut io::stdin().lock(), &sender);
            drop(sender);
            if end == InputEnd::Closed {
                wait(GRACE);
            }
            process::exit(EXIT_ORPHANED);
        })?;
        Ok(Self { messages })
    }

    /// Waits up to `timeout` for the next message.
    ///
    /// # Errors
    ///
    /// [`ParentClosed`] after the parent has closed the pipe.
    pub fn next(&self, timeout: Duration) -> Result<Option<T>, ParentClosed> {
        match self.messages.recv_timeout(timeout) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(ParentClosed),
        }
    }
}

/// The parent has closed the pipe or has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentClosed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputEnd {
    /// The end of the input, or a malformed line.
    Closed,
    /// The process takes no messages.
    QueueFull,
}

/// Queues messages until the input ends, is malformed, or the queue is full. Blocks only on the
/// input, so that its end is always noticed.
fn forward<T: DeserializeOwned>(input: &mut impl BufRead, messages: &SyncSender<T>) -> InputEnd {
    let mut line = Vec::new();
    while let Ok(Some(message)) = read_line(input, &mut line) {
        // Without a receiver the end of the pipe still counts.
        if let Err(TrySendError::Full(_)) = messages.try_send(message) {
            return InputEnd::QueueFull;
        }
    }
    InputEnd::Closed
}

/// Reads and parses one line; `None` at the end of the input.
///
/// `line` is a reusable buffer, of at most [`LINE_BYTES_MAX`] bytes.
///
/// # Errors
///
/// `InvalidData` if the line is too long or not a `T`; otherwise the system's.
pub fn read_line<T: DeserializeOwned>(
    input: &mut impl BufRead,
    line: &mut Vec<u8>,
) -> io::Result<Option<T>> {
    line.clear();
    let max = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
    input.by_ref().take(max).read_until(b'\n', line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') && line.len() >= LINE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a line is over the limit of {LINE_BYTES_MAX} bytes"),
        ));
    }
    serde_json::from_slice(line).map(Some).map_err(Into::into)
}

/// Writes `value` as one line, in one write.
///
/// # Errors
///
/// `InvalidData` if the line would be too long to be read; otherwise the system's.
pub fn write_line<T: Serialize>(output: &mut impl Write, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    if line.len() > LINE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a line is over the limit of {LINE_BYTES_MAX} bytes"),
        ));
    }
    output.write_all(&line)?;
    output.flush()
}

/// Starts a thread of this name.
///
/// # Errors
///
/// The system's.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.into()).spawn(run)
}

/// Blocks for `span`.
pub fn wait(span: Duration) {
    let (_open, nothing) = mpsc::channel::<()>();
    // Nothing is sent: the wait ends by its timeout.
    nothing.recv_timeout(span).ok();
}

/// Longest line, bytes: grants for 64 players in one message take 108 KiB.
pub const LINE_BYTES_MAX: usize = 128 << 10;

/// Time for an orderly end after the parent has closed the pipe.
pub const GRACE: Duration = Duration::from_millis(1_500);

/// Queued messages.
pub const MESSAGES_MAX: usize = 256;

const EXIT_ORPHANED: i32 = 70;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut pipe = Vec::new();
        write_line(&mut pipe, &[1, 2]).unwrap();
        write_line(&mut pipe, &[3, 4]).unwrap();
        let (mut input, mut line) = (pipe.as_slice(), Vec::new());
        assert_eq!(read_line(&mut input, &mut line).unwrap(), Some([1, 2]));
        assert_eq!(read_line(&mut input, &mut line).unwrap(), Some([3, 4]));
        assert_eq!(read_line::<[u8; 2]>(&mut input, &mut line).unwrap(), None);
    }

    #[test]
    fn a_line_without_end_is_held_only_up_to_the_limit() {
        let mut input = io::BufReader::new(io::repeat(b'1'));
        let mut line = Vec::new();
        let error = read_line::<u8>(&mut input, &mut line).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(line.len(), LINE_BYTES_MAX);
    }

    #[test]
    fn a_malformed_line_ends_the_messages() {
        let (sender, messages) = mpsc::sync_channel::<u8>(8);
        let end = forward(&mut b"1\n2\nthree\n4\n".as_slice(), &sender);
        drop(sender);
        assert_eq!(end, InputEnd::Closed);
        assert_eq!(messages.iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_full_queue_does_not_hide_the_end_of_the_input() {
        let (sender, messages) = mpsc::sync_channel::<u8>(2);
        let input = b"1\n2\n3\n".as_slice();
        assert_eq!(forward(&mut &*input, &sender), InputEnd::QueueFull);
        assert_eq!(messages.try_iter().count(), 2);
        // A process that has dropped the receiver is ending, and has the time for it.
        drop(messages);
        assert_eq!(forward(&mut &*input, &sender), InputEnd::Closed);
    }

    #[test]
    fn a_line_over_the_limit_is_not_written() {
        let long = "x".repeat(LINE_BYTES_MAX);
        assert!(write_line(&mut Vec::new(), &long).is_err());
    }
}
