//! HTTP/1.1 servers on threads of their own, with limits per connection.

pub mod client;
pub(crate) mod connections;
pub(crate) mod error_response;
pub(crate) mod field;
pub(crate) mod target;
mod timeout_stream;

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::{Extension, Router, middleware};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::exit::Failure;
use connections::{ConnectionSlot, track};
use timeout_stream::TimeoutStream;

#[derive(Debug)]
pub(crate) struct BoundPort {
    listener: TcpListener,
    address: SocketAddr,
}

impl BoundPort {
    /// Opens the port; with port 0 the system chooses one.
    ///
    /// # Errors
    ///
    /// One sentence with the address.
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

    /// Starts a thread of this name that runs `serve`.
    pub(crate) fn serve<F>(
        self,
        name: &str,
        serve: impl FnOnce(tokio::net::TcpListener) -> F,
    ) -> io::Result<Server>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener)?
        };
        let served = serve(listener);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                runtime.spawn(served);
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
    /// Closed, in order or with an error.
    Ended(Result<(), hyper::Error>),
    Evicted,
}

pub(crate) async fn serve_connection(
    stream: TcpStream,
    routes: Router,
    limits: Limits,
    slot: &mut ConnectionSlot,
) -> ConnectionOutcome {
    let routes = routes
        .layer(middleware::from_fn(track))
        .layer(Extension(slot.activity()));
    tokio::select! {
        biased;
        served = serve(stream, routes, limits) => ConnectionOutcome::Ended(served),
        () = slot.closed() => ConnectionOutcome::Evicted,
    }
}

async fn serve(stream: TcpStream, routes: Router, limits: Limits) -> Result<(), hyper::Error> {
    // A response is one small segment.
    drop(stream.set_nodelay(true));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.read_timeout)
        .max_buf_size(limits.head_bytes_max.max(HEAD_BYTES_MIN))
        .max_headers(HEADERS_MAX);
    let stream = TokioIo::new(TimeoutStream::new(stream, limits.write_timeout));
    let mut connection = pin!(http.serve_connection(stream, TowerToHyperService::new(routes)));
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

/// hyper's minimum.
const HEAD_BYTES_MIN: usize = 8_192;

const HEADERS_MAX: usize = 64;

/// Pause after a failed accept, which would fail again at once without descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
