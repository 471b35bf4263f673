//! What a server spends on a first datagram that it does not let in.

use core::time::Duration;

use crate::lane::Lane;
use crate::stack::quinn_proto::{QuinnEnd, QuinnProto};
use crate::stack::{End, Stack, client_address};

/// A QUIC server that answers every first datagram by a RETRY: what TWP/1 does where a cookie is
/// needed.
pub struct QuinnRetry {
    server: QuinnEnd,
    hello: Vec<u8>,
    replies: Vec<u8>,
    sources: u32,
    now: Duration,
}

/// Between two of them: 200,000 a second, as in `benches::flood`.
const INTERVAL: Duration = Duration::from_micros(5);

impl QuinnRetry {
    /// Makes the server, and the datagram that comes again and again.
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

    /// Has it come once more, from another address, and answers.
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
    fn each_is_answered() {
        let mut retry = QuinnRetry::new();
        (0..1_000).for_each(|_| retry.refuse());
    }
}
