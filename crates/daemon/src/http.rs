//! HTTP/1.1 servers on threads of their own, with limits per connection.

pub mod client;
pub(crate) mod connections;
pub(crate) mod count;
pub(crate) mod error_response;
pub(crate) mod open_connection;
pub(crate) mod request;
pub(crate) mod tls;
pub(crate) mod websocket;

use std::io;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::{Extension, Router, middleware};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep, timeout};

use crate::control::spawn;
use crate::exit::Failure;
use connections::{ConnectionSlot, track};

#[derive(Debug)]
pub(crate) struct BoundPort {
    listener: TcpListener,
    address: SocketAddr,
}

impl BoundPort {
    /// Opens the port; with port 0 the system chooses one.
    pub(crate) fn bind(listen: SocketAddr) -> Result<Self, Failure> {
        let fail = |error: io::Error| {
            Failure::refused(if error.kind() == ErrorKind::AddrInUse {
                format!("TCP port {listen} is in use by another program")
            } else {
                format!("TCP port {listen} cannot be listened on: {error}")
            })
        };
        let listener = TcpListener::bind(listen).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Self { listener, address })
    }

    /// Starts a thread of this name that calls `on_accept` for each connection.
    pub(crate) fn serve(
        self,
        name: &str,
        mut on_accept: impl FnMut(TcpStream, SocketAddr) + Send + 'static,
    ) -> io::Result<Server> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener)?
        };
        let server = name.to_owned();
        let accept = async move {
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        // A response is one small segment.
                        drop(stream.set_nodelay(true));
                        on_accept(stream, peer);
                    }
                    Err(error) => {
                        tracing::debug!(server, error = %error.kind(), "an accept failed");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        let thread = spawn(name, move || {
            runtime.spawn(accept);
            // Ends when the handle is dropped; running tasks are dropped then.
            drop(runtime.block_on(stopped));
            runtime.shutdown_background();
        })?;
        Ok(Server {
            address: self.address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// A running server. Dropping it closes the port and all connections.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn is_running(&self) -> bool {
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of an HTTP server has panicked");
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) head_bytes_max: usize,
    /// Time for a request's head, from its first byte or the end of the previous request.
    pub(crate) read_timeout: Duration,
    /// Time for a blocked response to be written.
    pub(crate) write_timeout: Duration,
    /// Lifetime; the connection ends after the current request.
    pub(crate) life: Duration,
}

#[derive(Debug)]
pub(crate) enum ConnectionOutcome {
    Ended(Result<(), hyper::Error>),
    Evicted,
}

/// Serves the requests of `stream`, which may end as a connection of another protocol (RFC 9110,
/// section 7.8). That one keeps the timeout of its writes, and no slot.
pub(crate) async fn serve_connection<S>(
    stream: S,
    routes: Router,
    limits: Limits,
    slot: &mut ConnectionSlot,
) -> ConnectionOutcome
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let routes = routes
        .layer(middleware::from_fn(track))
        .layer(Extension(slot.activity()));
    tokio::select! {
        biased;
        served = serve(stream, routes, limits) => ConnectionOutcome::Ended(served),
        () = slot.closed() => ConnectionOutcome::Evicted,
    }
}

async fn serve<S>(stream: S, routes: Router, limits: Limits) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.read_timeout)
        .max_buf_size(limits.head_bytes_max.max(HEAD_BYTES_MIN))
        .max_headers(HEADERS_MAX);
    let stream = TokioIo::new(TimeoutStream::new(stream, limits.write_timeout));
    let service = TowerToHyperService::new(routes);
    let mut connection = pin!(http.serve_connection(stream, service).with_upgrades());
    let served = if let Ok(served) = timeout(limits.life, connection.as_mut()).await {
        served
    } else {
        // The current request has limits of its own; no other follows.
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Err(error) = &served {
        tracing::debug!(%error, "a connection ended badly");
    }
    served
}

const HEAD_BYTES_MIN: usize = 8_192;

const HEADERS_MAX: usize = 64;

/// Pause after a failed accept, which would fail again at once without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A stream on which blocked writes time out. The timeout runs from the first blocked write until a
/// flush succeeds, so a peer that reads a byte now and then does not extend it.
#[derive(Debug)]
struct TimeoutStream<S> {
    stream: S,
    limit: Duration,
    /// When blocked writes must be flushed; `None` if nothing is blocked.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> TimeoutStream<S> {
    const fn new(stream: S, limit: Duration) -> Self {
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
            return Poll::Ready(Err(ErrorKind::TimedOut.into()));
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
        let late = Poll::Ready(Err(ErrorKind::TimedOut));
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
