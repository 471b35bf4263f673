//! The listeners of a driver.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use wire::address::canonical;
use wire::{Instant, SourceKey};

use super::links::Links;
use crate::tcp::listener::StreamListener;

/// The listeners of a driver. The token of each is its index.
#[derive(Debug)]
pub(super) struct Door {
    listeners: Vec<StreamListener>,
    /// Whether each listener may have a pending connection.
    is_ready: Vec<bool>,
    /// When to retry after a failed accept.
    retry_at: Option<Instant>,
}

impl Door {
    pub(super) fn new(mut listeners: Vec<StreamListener>, registry: &Registry) -> io::Result<Self> {
        for (place, listener) in listeners.iter_mut().enumerate() {
            registry.register(&mut listener.io, Token(place), Interest::READABLE)?;
        }
        Ok(Self {
            is_ready: vec![false; listeners.len()],
            listeners,
            retry_at: None,
        })
    }

    /// Marks a listener as ready. Returns whether `token` is a listener's.
    pub(super) fn note(&mut self, token: Token) -> bool {
        let Some(is_ready) = self.is_ready.get_mut(token.0) else {
            return false;
        };
        *is_ready = true;
        true
    }

    /// Accepts pending connections, up to a bound. Returns how many.
    pub(super) fn accept(&mut self, now: Instant, links: &mut Links) -> usize {
        if self.retry_at.is_some_and(|at| at > now) {
            return 0;
        }
        self.retry_at = None;
        let mut count = 0_usize;
        for (listener, is_ready) in self.listeners.iter().zip(&mut self.is_ready) {
            while *is_ready && count < ACCEPTS_MAX {
                match accept(listener) {
                    Accepted::Peer(io, peer) => {
                        count = count.saturating_add(1);
                        links.accept(now, io, SourceKey::of(peer.ip()), &listener.tls);
                    }
                    Accepted::Nobody => *is_ready = false,
                    Accepted::Error => {
                        links.ledger.accept_errors.add(1);
                        self.retry_at = Some(now + RETRY_PAUSE);
                        return count;
                    }
                }
            }
        }
        count
    }

    /// Returns whether a pending connection can be accepted now.
    pub(super) fn is_behind(&self) -> bool {
        self.retry_at.is_none() && self.is_ready.contains(&true)
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Closes all listeners.
    pub(super) fn shut(&mut self) {
        self.listeners.clear();
        self.is_ready.fill(false);
        self.retry_at = None;
    }
}

enum Accepted {
    Peer(TcpStream, SocketAddr),
    Nobody,
    Error,
}

fn accept(listener: &StreamListener) -> Accepted {
    loop {
        return match listener.io.accept() {
            Ok((io, peer)) => Accepted::Peer(io, canonical(peer)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Accepted::Nobody,
            // The peer left before the accept; accept(2).
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) =>
            {
                continue;
            }
            Err(_) => Accepted::Error,
        };
    }
}

/// Maximum accepts per turn.
const ACCEPTS_MAX: usize = 64;

/// Pause after a failed accept. The cause, such as a lack of descriptors, seldom ends at once.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
