//! Socket options of members' connections.

use std::io;
use std::time::Duration;

use mio::net::TcpStream;
use socket2::{SockRef, TcpKeepalive};

/// Socket options of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketOptions {
    /// Send buffer in the system, bytes.
    pub(super) send_buffer_bytes: usize,
    /// TCP keepalive: idle time before the first probe, and interval between probes.
    pub(super) keepalive: Duration,
}

impl SocketOptions {
    /// Sets the options. Errors are ignored: the buffer then has another size, or a dead peer is
    /// detected later.
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
        // Linux grants twice the requested size: socket(7), `SO_SNDBUF`.
        assert!(socket.send_buffer_size().unwrap() <= 64 << 10);
    }
}
