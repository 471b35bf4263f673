//! A server and its clients.

use std::io::Read;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use servicer::{
    Admission, ClientClose, ClientEvent, Dial, JoinRequest, LeaveCause, MemberId, ReliableClient,
    ReliableConfig, ReliableServer, ServerEvent, StreamListener, TcpServicers,
};
use wire::NodeId;

use crate::harness::{TIMEOUT, identity};
use crate::raw_client::{RawClient, RawIdentity, read_confirmation, write_partial_record};

/// A server and its address.
pub(super) struct Harness {
    pub(super) server: ReliableServer,
    pub(super) node: NodeId,
    pub(super) address: SocketAddr,
    pub(super) config: ReliableConfig,
}

/// Runs `test` with both ways to divide clients.
pub(super) fn with_both_modes(test: impl Fn(ReliableConfig)) {
    for servicers in [TcpServicers::ThreadPerClient, pool(3)] {
        println!("{servicers:?}");
        let mut config = ReliableConfig::default();
        config.servicers = Some(servicers);
        // A loaded host may starve a thread for seconds: tests of a deadline set it, and no other
        // test ends by one.
        config.stream.handshake_timeout = TIMEOUT;
        config.stream.record_timeout = TIMEOUT;
        config.join_timeout = TIMEOUT;
        config.queued_age_max = TIMEOUT;
        test(config);
    }
}

pub(super) fn pool(threads: usize) -> TcpServicers {
    let threads = NonZeroUsize::new(threads).unwrap();
    TcpServicers::Pool { threads }
}

impl Harness {
    pub(super) fn new(config: &ReliableConfig) -> Self {
        Self::named("stage", config)
    }

    pub(super) fn named(name: &str, config: &ReliableConfig) -> Self {
        let identity = identity();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = StreamListener::bind(any, &identity, Admission::Anyone).unwrap();
        let address = listener.local_address();
        let server = ReliableServer::start(name, vec![listener], config).unwrap();
        assert_eq!(server.addresses(), [address]);
        Self {
            server,
            node: identity.node_id(),
            address,
            config: *config,
        }
    }

    /// Starts a client with the join request `words`.
    pub(super) fn call(&self, words: &str) -> ReliableClient {
        let dial = Dial {
            address: self.address,
            peer: self.node.into(),
        };
        let join = Bytes::copy_from_slice(words.as_bytes());
        ReliableClient::connect("client", dial, None, join, &self.config).unwrap()
    }

    /// Starts a client and accepts it.
    pub(super) fn join(&mut self, words: &str) -> (ReliableClient, MemberId) {
        let mut client = self.call(words);
        let request = self.request();
        assert_eq!(&request.payload()[..], words.as_bytes());
        let member = self.server.accept(request, text("welcome")).unwrap();
        let welcome = text("welcome");
        assert_eq!(next_event(&mut client), ClientEvent::Accepted { welcome });
        (client, member)
    }

    /// Waits for the next event.
    pub(super) fn next(&mut self) -> ServerEvent {
        self.server.wait_event(TIMEOUT).unwrap()
    }

    /// Waits for a join request.
    pub(super) fn request(&mut self) -> JoinRequest {
        let event = self.next();
        let ServerEvent::Join(request) = event else {
            panic!("{event:?}")
        };
        request
    }

    /// Waits for the event that a member has left.
    pub(super) fn left(&mut self, member_id: MemberId) -> LeaveCause {
        let event = self.next();
        let ServerEvent::Left { member, cause } = event else {
            panic!("{event:?}")
        };
        assert_eq!(member, member_id);
        cause
    }

    /// Retries until the queue has room.
    pub(super) fn send_retrying(
        &mut self,
        dest: impl Into<servicer::Dest>,
        payload: &Bytes,
    ) -> usize {
        let dest = dest.into();
        loop {
            if let Ok(count) = self.server.send(dest.clone(), payload.clone()) {
                return count;
            }
            std::thread::yield_now();
        }
    }

    /// Sum of a counter over all running servicers.
    pub(super) fn sum(&self, of: impl Fn(&servicer::StreamCounters) -> u64) -> u64 {
        self.server.counters().iter().map(of).sum()
    }
}

/// Waits for the next event of a client.
pub(super) fn next_event(client: &mut ReliableClient) -> ClientEvent {
    client.wait_event(TIMEOUT).unwrap()
}

pub(super) fn message(client: &mut ReliableClient) -> Bytes {
    let event = next_event(client);
    let ClientEvent::Message(payload) = event else {
        panic!("{event:?}")
    };
    payload
}

/// Waits for the end of a client.
pub(super) fn closed(client: &mut ReliableClient) -> ClientClose {
    let event = next_event(client);
    let ClientEvent::Closed(close) = event else {
        panic!("{event:?}")
    };
    close
}

pub(super) fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Threads of this process with this name prefix.
pub(super) fn threads(name: &str) -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|comm| comm.starts_with(name))
        .count()
}

/// Checks that no thread of this process has this name prefix. A joined thread is listed for a
/// moment longer: the kernel wakes the joiner first.
pub(super) fn no_threads(name: &str) {
    until(|| threads(name) == 0);
}

/// Waits until `what` returns true; a timeout ends the test.
pub(super) fn until(what: impl Fn() -> bool) {
    let clock = servicer::Clock::new();
    let began = clock.now();
    while !what() {
        assert!(clock.now().saturating_since(began) < TIMEOUT, "in vain");
        std::thread::yield_now();
    }
}

/// Long enough for data in flight on this host.
pub(super) const SETTLE_TIME: Duration = Duration::from_millis(50);

impl Harness {
    /// Accepts a client that the test plays by hand, over raw TLS.
    pub(super) fn join_by_hand(&mut self) -> (RawClient, MemberId) {
        let mut raw_client = RawIdentity::honest().dial(self.address);
        read_confirmation(&mut raw_client);
        write_partial_record(&mut raw_client, 5, b"\0\x01raw");
        let request = self.request();
        let member = self.server.accept(request, Bytes::new()).unwrap();
        assert_eq!(
            record(&mut raw_client),
            [1],
            "let in, with no word of welcome"
        );
        (raw_client, member)
    }
}

pub(super) fn record(raw_client: &mut RawClient) -> Vec<u8> {
    let mut header = [0; 4];
    raw_client.read_exact(&mut header).unwrap();
    let mut record = vec![0; usize::try_from(u32::from_be_bytes(header)).unwrap()];
    raw_client.read_exact(&mut record).unwrap();
    record
}
