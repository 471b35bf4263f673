//! What the system is asked for with a connection of a member.

use std::io;
use std::time::Duration;

use mio::net::TcpStream;
use socket2::{SockRef, TcpKeepalive};

/// What the system is asked for with a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketOptions {
    /// Bytes that the system may hold to be sent.
    pub(super) send_buffer_bytes: usize,
    /// Silence after which it asks for the other end, and pause between its questions.
    pub(super) keepalive: Duration,
}

impl SocketOptions {
    /// Asks the system. Where it does not grant them, a buffer is of another size, or a dead peer is
    /// noticed later, and nothing else is wrong.
    pub(super) fn ask_for(self, socket: &TcpStream) {
        if let Err(error) = self.set(socket) {
            tracing::debug!(%error, "socket options refused");
        }
    }

    fn set(self, socket: &TcpStream) -> io::Result<()> {
        let socket = SockRef::from(socket);
        let keepalive = TcpKeepalive::new()
            .with_time(self.keepalive)
            .with_interval(self.keepalive);
        socket.set_send_buffer_size(self.send_buffer_bytes)?;
        socket.set_tcp_keepalive(&keepalive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ls_19_the_system_holds_no_more_for_a_connection_than_it_is_asked_to() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let options = SocketOptions {
            send_buffer_bytes: 32 << 10,
            keepalive: Duration::from_secs(15),
        };
        options.set(&socket).unwrap();
        let socket = SockRef::from(&socket);
        assert!(socket.keepalive().unwrap());
        // Linux grants twice what it is asked for: socket(7), `SO_SNDBUF`.
        assert!(socket.send_buffer_size().unwrap() <= 64 << 10);
    }
}
