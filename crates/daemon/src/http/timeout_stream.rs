//! A stream with a write timeout, which hyper does not have.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream on which blocked writes time out. The timeout runs from the first blocked write until a
/// flush succeeds, so a peer that reads a byte now and then does not extend it.
#[derive(Debug)]
pub(super) struct TimeoutStream<S> {
    stream: S,
    limit: Duration,
    /// When blocked writes must be flushed; `None` if nothing is blocked.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> TimeoutStream<S> {
    pub(super) const fn new(stream: S, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            deadline: None,
        }
    }

    /// Turns a pending `outcome` into `TimedOut` after the deadline.
    fn poll_deadline<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_pending() {
            let limit = self.limit;
            let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(limit)));
            ready!(deadline.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        outcome
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.poll_deadline(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.poll_deadline(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        if outcome.is_ready() {
            self.deadline = None;
        }
        self.poll_deadline(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.poll_deadline(context, outcome)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::runtime::Builder;

    use super::*;

    /// Accepts one byte in every second call.
    #[derive(Debug, Default)]
    struct Slow {
        is_ready: bool,
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.is_ready = !self.is_ready;
            if self.is_ready {
                Poll::Pending
            } else {
                Poll::Ready(Ok(1))
            }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[test]
    fn partial_writes_do_not_extend_the_timeout() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let _context = runtime.enter();
        let limit = Duration::from_millis(30);
        let mut context = Context::from_waker(Waker::noop());
        let pass = |span| runtime.block_on(async { sleep(span).await });
        let mut stream = TimeoutStream::new(Slow::default(), limit);
        let mut write = |stream: &mut TimeoutStream<Slow>| {
            Pin::new(stream)
                .poll_write(&mut context, b"ab")
                .map(|written| written.map_err(|error| error.kind()))
        };
        assert_eq!(write(&mut stream), Poll::Pending);
        assert_eq!(write(&mut stream), Poll::Ready(Ok(1)));
        pass(limit * 2);
        // Partial writes do not extend the deadline.
        let late = Poll::Ready(Err(io::ErrorKind::TimedOut));
        assert_eq!(write(&mut stream), late);

        let mut stream = TimeoutStream::new(Slow::default(), limit);
        assert_eq!(write(&mut stream), Poll::Pending);
        assert_eq!(write(&mut stream), Poll::Ready(Ok(1)));
        let mut context = Context::from_waker(Waker::noop());
        let flushed = Pin::new(&mut stream).poll_flush(&mut context);
        assert!(matches!(flushed, Poll::Ready(Ok(()))));
        pass(limit * 2);
        assert_eq!(write(&mut stream), Poll::Pending);
        pass(limit * 2);
        let ended = Pin::new(&mut stream).poll_shutdown(&mut context);
        assert!(matches!(ended, Poll::Ready(Err(_))), "it has its time too");
    }
}
