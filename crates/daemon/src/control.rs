//! How a process and its children talk: one JSON object a line, over the child's stdin and stdout.
//!
//! The pipe is also the leash: a child whose stdin closes ends within two seconds, whatever its
//! threads are doing, so that no descendant outlives whoever started it.

use std::io::{self, BufRead, Read, Write};
use std::process;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The orders of a parent, as a child hears them.
#[derive(Debug)]
pub struct ParentPipe<T> {
    messages: Receiver<T>,
}

impl<T: DeserializeOwned + Send + 'static> ParentPipe<T> {
    /// Starts the thread that reads stdin.
    ///
    /// Once stdin ends, or holds something else than orders, [`next`](Self::next) says so, and
    /// the process is ended [`GRACE`] later if it has not ended by itself. It is ended at once
    /// where it leaves [`ORDERS_MAX`] orders untaken and gets another: whoever does not take
    /// orders would not hear that the parent is gone either.
    ///
    /// # Errors
    ///
    /// The system's, where it has no thread left.
    pub fn open() -> io::Result<Self> {
        let (sender, messages) = mpsc::sync_channel(MESSAGES_MAX);
        thread::Builder::new()
            .name("leash".to_owned())
            .spawn(move || {
                let end = forward(&mut io::stdin().lock(), &sender);
                drop(sender);
                if end == InputEnd::Closed {
                    wait(GRACE);
                }
                process::exit(EXIT_ORPHANED);
            })?;
        Ok(Self { messages })
    }

    /// Waits up to `patience` for the next order.
    ///
    /// # Errors
    ///
    /// [`Released`] once the parent has let go.
    pub fn next(&self, timeout: Duration) -> Result<Option<T>, ParentClosed> {
        match self.messages.recv_timeout(timeout) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(ParentClosed),
        }
    }
}

/// The parent has closed the pipe: it wants an end, or has come to its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentClosed;

/// Why no order is read any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputEnd {
    /// The input has ended, or said what is no order.
    Closed,
    /// The process takes none.
    QueueFull,
}

/// Reads orders until the input ends, says what is no order, or nobody takes them. Waits for
/// nothing but the input, so that its end is seen whatever other threads do.
fn forward<T: DeserializeOwned>(input: &mut impl BufRead, messages: &SyncSender<T>) -> InputEnd {
    let mut line = Vec::new();
    while let Ok(Some(message)) = read_line(input, &mut line) {
        // Where nobody asks any more, the end of the pipe still counts.
        if let Err(TrySendError::Full(_)) = messages.try_send(message) {
            return InputEnd::QueueFull;
        }
    }
    InputEnd::Closed
}

/// Reads one line and what it says; `None` at the end of the input.
///
/// `line` is a buffer to be used again. At most [`LINE_BYTES_MAX`] bytes are held.
///
/// # Errors
///
/// `InvalidData` where a line is too long or is no `T`; else the system's.
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

/// Writes what `value` says as one line, in one piece.
///
/// # Errors
///
/// `InvalidData` where the line would be too long to be read; else the system's.
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

/// Lets `span` pass.
pub fn wait(span: Duration) {
    let (_open, nothing) = mpsc::channel::<()>();
    // Nothing ever comes: the wait ends by its time.
    nothing.recv_timeout(span).ok();
}

/// Longest line, in bytes: grants for 64 players in one order are 108 KiB.
pub const LINE_BYTES_MAX: usize = 128 << 10;

/// How long a child may take for an orderly end once its parent has let go.
pub const GRACE: Duration = Duration::from_millis(1_500);

/// Orders that wait for a process to take them.
pub const MESSAGES_MAX: usize = 256;

/// Exit status of a child that had to be ended.
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
    fn a_line_that_is_no_order_ends_the_orders() {
        let (sender, messages) = mpsc::sync_channel::<u8>(8);
        let end = forward(&mut b"1\n2\nthree\n4\n".as_slice(), &sender);
        drop(sender);
        assert_eq!(end, InputEnd::Closed);
        assert_eq!(messages.iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_process_that_takes_no_orders_does_not_keep_the_end_of_its_input_unseen() {
        let (sender, messages) = mpsc::sync_channel::<u8>(2);
        let input = b"1\n2\n3\n".as_slice();
        assert_eq!(forward(&mut &*input, &sender), InputEnd::QueueFull);
        assert_eq!(messages.try_iter().count(), 2);
        // One that has dropped its end is on its way out, and has the time for it.
        drop(messages);
        assert_eq!(forward(&mut &*input, &sender), InputEnd::Closed);
    }

    #[test]
    fn too_long_a_line_is_not_written() {
        let long = "x".repeat(LINE_BYTES_MAX);
        assert!(write_line(&mut Vec::new(), &long).is_err());
    }
}
