//! Open connections on their way from one driver to another.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use wire::address::canonical;
use wire::{PeerIdentity, SourceKey};

use super::connection::Connection;
use super::table::Key;

/// An open connection that no driver serves: one has given it up, and another may take it.
///
/// Nothing is read or written meanwhile, and no time runs. Dropping it closes the connection
/// without a farewell. It counts towards the limits of the driver that accepted it until it is
/// closed, whoever serves it.
pub struct OpenConnection {
    pub(super) connection: Box<Connection>,
    pub(super) peer: PeerIdentity,
}

impl OpenConnection {
    /// Returns who has been proved to be at the other end.
    pub const fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// Returns its socket.
    pub(crate) const fn socket(&self) -> &mio::net::TcpStream {
        &self.connection.io
    }

    /// Returns the address of the other end; `None` where it has left already.
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

/// The place of a connection in the limits of the driver that accepted it, while another serves it.
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

/// Places whose connections are closed, until the driver that lent them takes note.
///
/// Locked where a connection comes and where one goes, for as long as a push or a swap takes.
#[derive(Debug, Default)]
pub(super) struct ReturnedPlaces(Mutex<Vec<(SourceKey, Key)>>);

impl ReturnedPlaces {
    fn put(&self, source: SourceKey, key: Key) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.push((source, key));
    }

    /// Takes all that came back.
    pub(super) fn take(&self) -> Vec<(SourceKey, Key)> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *places)
    }
}
