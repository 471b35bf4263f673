//! Handover of open connections between drivers.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use wire::address::canonical;
use wire::{PeerIdentity, SourceKey};

use super::connection::Connection;
use super::table::Key;

/// An open connection between two drivers: one has handed it over, another may take it.
///
/// It is not read or written, and its deadlines do not run. Dropping it closes the connection
/// without a TLS close. Until it is closed, it counts towards the limits of the driver that
/// accepted it, whichever driver serves it.
pub struct OpenConnection {
    pub(super) connection: Box<Connection>,
    pub(super) peer: PeerIdentity,
}

impl OpenConnection {
    /// Returns the identity that the peer proved.
    pub const fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// Returns the socket.
    pub(crate) const fn socket(&self) -> &mio::net::TcpStream {
        &self.connection.io
    }

    /// Returns the peer's address; `None` if the peer has already left.
    pub fn address(&self) -> Option<SocketAddr> {
        self.connection.io.peer_addr().ok().map(canonical)
    }
}

impl fmt::Debug for OpenConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenConnection")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// The slot of a connection in the limits of the driver that accepted it, while another serves it.
#[derive(Debug)]
pub(super) struct LentPlace {
    pub(super) source: SourceKey,
    pub(super) key: Key,
    pub(super) returned: Arc<ReturnedPlaces>,
}

impl Drop for LentPlace {
    fn drop(&mut self) {
        self.returned.put(self.source, self.key);
    }
}

/// Slots of closed connections, until the driver that lent them collects them.
///
/// Locked for a push or a swap at each close and at each new connection.
#[derive(Debug, Default)]
pub(super) struct ReturnedPlaces(Mutex<Vec<(SourceKey, Key)>>);

impl ReturnedPlaces {
    fn put(&self, source: SourceKey, key: Key) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.push((source, key));
    }

    /// Takes all returned slots.
    pub(super) fn take(&self) -> Vec<(SourceKey, Key)> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *places)
    }
}
