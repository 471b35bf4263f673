//! The thread that waits for TCP sockets, and wakes the node's.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use mio::{Events, Poll, Token, Waker};

/// What the system has told of sockets since it was last looked at.
#[derive(Debug, Default)]
pub(super) struct ReadySet {
    /// By token, so that a node which is late is told of each socket once.
    events: Mutex<BTreeMap<usize, SocketEvents>>,
    is_stopping: AtomicBool,
}

/// What the system says of one socket: that it may be read and written, or has an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SocketEvents {
    pub(super) has_error: bool,
}

impl ReadySet {
    /// Takes what was noted, into `into`, which is empty.
    pub(super) fn take(&self, into: &mut BTreeMap<usize, SocketEvents>) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        mem::swap(&mut *events, into);
    }

    fn note(&self, polled: &Events) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        for event in polled.iter().filter(|event| event.token() != WAKER) {
            let ready = events.entry(event.token().0).or_default();
            ready.has_error |= event.is_error();
        }
    }
}

/// The thread. Dropping it ends it.
#[derive(Debug)]
pub(in crate::relay) struct PollThread {
    ready: Arc<ReadySet>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl PollThread {
    /// Starts to wait for the sockets registered with `poll`.
    pub(super) fn start(
        mut poll: Poll,
        ready: Arc<ReadySet>,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let waker = Waker::new(poll.registry(), WAKER)?;
        let watched = Arc::clone(&ready);
        let watch = move || {
            let mut events = Events::with_capacity(EVENTS_MAX);
            while !watched.is_stopping.load(Ordering::SeqCst) {
                match poll.poll(&mut events, None) {
                    Ok(()) => {
                        watched.note(&events);
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
        let thread = Builder::new().name("tcp".to_owned()).spawn(watch)?;
        Ok(Self {
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

/// Of the thread itself; sockets are counted from 0.
const WAKER: Token = Token(usize::MAX);
/// Events that one look takes; what does not fit is told by the next.
const EVENTS_MAX: usize = 256;
