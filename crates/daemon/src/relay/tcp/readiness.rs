//! The thread that polls TCP sockets and wakes the node's thread.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use mio::{Events, Poll, Token, Waker};

use crate::control::spawn;
/// Sockets with events since the last `take`.
#[derive(Debug, Default)]
pub(super) struct ReadySet {
    /// By token, so that a slow node sees each socket once.
    events: Mutex<BTreeMap<usize, SocketEvents>>,
    is_stopping: AtomicBool,
}

/// Events of one socket. Any event means that it may be readable and writable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SocketEvents {
    pub(super) has_error: bool,
}

impl ReadySet {
    /// Swaps the set with `into`, which must be empty.
    pub(super) fn take(&self, into: &mut BTreeMap<usize, SocketEvents>) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        mem::swap(&mut *events, into);
    }

    fn update(&self, polled: &Events) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        for event in polled.iter().filter(|event| event.token() != WAKER) {
            let ready = events.entry(event.token().0).or_default();
            ready.has_error |= event.is_error();
        }
    }
}

/// The poll of the sockets, before its thread is started.
#[derive(Debug)]
pub(in crate::relay) struct Poller {
    pub(super) poll: Poll,
    pub(super) ready: Arc<ReadySet>,
}

#[derive(Debug)]
pub(in crate::relay) struct PollThread {
    ready: Arc<ReadySet>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    /// Starts the thread, which calls `wake` when a socket is ready.
    pub(in crate::relay) fn start(
        self,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<PollThread> {
        let Self { mut poll, ready } = self;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let watched = Arc::clone(&ready);
        let watch = move || {
            let mut events = Events::with_capacity(EVENTS_MAX);
            while !watched.is_stopping.load(Ordering::SeqCst) {
                match poll.poll(&mut events, None) {
                    Ok(()) => {
                        watched.update(&events);
                        wake();
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        tracing::error!(%error, "TCP sockets cannot be waited for");
                        break;
                    }
                }
            }
        };
        let thread = spawn("tcp", watch)?;
        Ok(PollThread {
            ready,
            waker,
            thread: Some(thread),
        })
    }
}

impl Drop for PollThread {
    fn drop(&mut self) {
        self.ready.is_stopping.store(true, Ordering::SeqCst);
        let is_woken = self.waker.wake().is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_woken) {
            thread.join().ok();
        }
    }
}

/// Token of the waker; sockets count from 0.
const WAKER: Token = Token(usize::MAX);
const EVENTS_MAX: usize = 256;
