//! Cost of a first datagram that a server rejects.

use core::time::Duration;

use crate::lane::Lane;
use crate::stack::quinn_proto::{QuinnEnd, QuinnProto};
use crate::stack::{End, Stack, client_address};

/// A QUIC server which answers every first datagram with a RETRY, like TWP/1 when it requires a
/// cookie.
pub struct QuinnRetry {
    server: QuinnEnd,
    hello: Vec<u8>,
    replies: Vec<u8>,
    sources: u32,
    now: Duration,
}

/// Interval between datagrams: 200,000 per second, as in `benches::flood`.
const INTERVAL: Duration = Duration::from_micros(5);

impl QuinnRetry {
    /// Creates the server and the repeated datagram.
    pub fn new() -> Self {
        let server = QuinnProto::server(1);
        let mut client = QuinnProto::client(&server, 1, Duration::ZERO);
        let (mut lane, mut hello) = (Lane::default(), Vec::new());
        client.drain(Duration::ZERO, &mut lane);
        lane.deliver(|_, datagram| hello.extend_from_slice(datagram));
        assert_eq!(hello.len(), 1_200, "one datagram, filled up");
        Self {
            server,
            hello,
            replies: Vec::new(),
            sources: 0,
            now: Duration::ZERO,
        }
    }

    /// Delivers it from another address and answers.
    pub fn refuse(&mut self) {
        self.now += INTERVAL;
        self.sources += 1;
        let from = client_address(self.sources);
        self.server
            .retry(self.now, from, &self.hello, &mut self.replies);
    }
}

impl Default for QuinnRetry {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stack_answers() {
        let mut retry = QuinnRetry::new();
        (0..1_000).for_each(|_| retry.refuse());
    }
}
