//! Bounded queues of a flow's datagrams, which wait for a path or a socket.

use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

#[derive(Debug, Default)]
pub(super) struct DatagramQueue {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl DatagramQueue {
    /// Queues a datagram; returns false if there is no room.
    pub(super) fn push(&mut self, datagram: &[u8]) -> bool {
        let bytes = self.bytes.saturating_add(datagram.len());
        if self.waiting.len() >= DATAGRAMS_MAX || bytes > QUEUED_BYTES_MAX {
            return false;
        }
        self.bytes = bytes;
        self.waiting.push_back(datagram.to_vec());
        true
    }

    pub(super) fn take(&mut self) -> VecDeque<Vec<u8>> {
        self.bytes = 0;
        core::mem::take(&mut self.waiting)
    }
}

/// The datagrams of a flow without a label: a few use the session, the others wait for a path.
#[derive(Debug)]
pub(super) struct UnlabelledDatagrams {
    waiting: DatagramQueue,
    /// When the flow was opened.
    since: Instant,
    /// Number of datagrams sent over the session.
    by_session: u8,
}

impl UnlabelledDatagrams {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            waiting: DatagramQueue::default(),
            since: now,
            by_session: 0,
        }
    }

    /// Whether the flow is young, and may send another datagram over the session.
    pub(super) fn may_use_session(&self, now: Instant) -> bool {
        now.saturating_since(self.since) < YOUNG && self.by_session < BY_SESSION_MAX
    }

    pub(super) const fn on_sent_by_session(&mut self) {
        self.by_session = self.by_session.saturating_add(1);
    }

    /// Queues a datagram until the flow has a label; returns false if there is no room.
    pub(super) fn push(&mut self, datagram: &[u8]) -> bool {
        self.waiting.push(datagram)
    }

    pub(super) fn take(&mut self) -> VecDeque<Vec<u8>> {
        self.waiting.take()
    }
}

/// Datagrams in one queue, and their bytes: a quarter of a second of a typical game.
const DATAGRAMS_MAX: usize = 16;
pub(super) const QUEUED_BYTES_MAX: usize = 16 << 10;
/// Maximum age of a flow that sends over the session. An older one has labels, or gets none.
const YOUNG: Duration = Duration::from_secs(2);
/// Datagrams of one flow over the session: 250 ms of a typical game.
const BY_SESSION_MAX: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mesh_a1_queues_are_bounded_in_datagrams_and_bytes() {
        for (len, most) in [(100, DATAGRAMS_MAX), (1_400, QUEUED_BYTES_MAX / 1_400)] {
            let mut queue = DatagramQueue::default();
            let pushed = (0..100).filter(|_| queue.push(&vec![0; len])).count();
            assert_eq!(pushed, most);
            assert_eq!(queue.take().len(), most);
            assert!(queue.push(&[0]), "it is empty again");
        }
    }

    #[test]
    fn a_flow_uses_the_session_for_16_datagrams_within_2_s() {
        let at = Instant::from_millis;
        let mut flow = UnlabelledDatagrams::new(at(0));
        assert!(flow.may_use_session(at(1_999)) && !flow.may_use_session(at(2_000)));
        for _ in 0..BY_SESSION_MAX {
            assert!(flow.may_use_session(at(0)));
            flow.on_sent_by_session();
        }
        assert!(!flow.may_use_session(at(0)));
    }
}
