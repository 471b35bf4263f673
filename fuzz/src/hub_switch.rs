//! A hub with hostile nodes.

use hub::join_file::{Grant, NetworkSecret};
use hub::log::MemorySegments;
use hub::{Hub, HubConfig, JoinFile, LogId, Role, Store, StoreConfig};
use wire::{CloseCause, ConnectionId, Instant, NodeId, PeerIdentity, StreamMachine, UnixTime};

/// Feeds records to three links of a hub. After each, a store serves the hub. The hub writes at
/// most its credit, becomes idle, and holds bounded memory.
///
/// The script is a sequence of `link 1, length 1, record`; length 0 closes the link and opens it
/// again.
pub fn records(data: &[u8]) {
    let mut world = live(data);
    world.now += core::time::Duration::from_secs(100);
    world.hub.handle_timeout(world.now);
    world.drain();
    let next = world.hub.poll_timeout();
    assert!(next.is_none_or(|next| next > world.now), "it spins");
}

fn live(mut data: &[u8]) -> World {
    let mut world = World::new();
    while let Some(([link, len], rest)) = data.split_first_chunk() {
        let len = usize::from(*len).min(rest.len());
        let (record, behind) = rest.split_at(len);
        data = behind;
        world.say(usize::from(link % 3), record);
        world.drain();
    }
    world
}

struct World {
    hub: Hub,
    store: Store<MemorySegments>,
    now: Instant,
    /// Number of connections opened.
    opened: u32,
    links: [(ConnectionId, usize); 3],
}

const CREDIT: usize = 2_000;

impl World {
    fn new() -> Self {
        let mut file = JoinFile::new(NetworkSecret::new([1; 32]));
        for node in 0..3 {
            let grant = Grant::new(Role::GameNode, NodeId([node; 32]));
            file.grants.push(grant);
        }
        let now = Instant::from_millis(1);
        let mut config = HubConfig::default();
        config.link_bytes_max = 2_000;
        let mut store_config = StoreConfig::default();
        store_config.segment_bytes = 0;
        let disk = MemorySegments::new(4 << 20);
        let mut hub = Hub::new(config, file, now);
        hub.set_unix_time(now, UnixTime::from_secs(1_700_000_000));
        let mut world = Self {
            hub,
            store: Store::open(disk, store_config, LogId(1)).expect("an empty disk opens"),
            now,
            opened: 0,
            links: [(ConnectionId(0), 0); 3],
        };
        for index in 0..3 {
            world.open(index);
        }
        world
    }

    fn open(&mut self, index: usize) {
        self.opened += 1;
        let id = ConnectionId(self.opened);
        let node = NodeId([u8::try_from(index).expect("one of three"); 32]);
        self.hub
            .handle_opened(self.now, id, &PeerIdentity::Node(node));
        self.hub.handle_credit(self.now, id, CREDIT);
        if let Some(link) = self.links.get_mut(index) {
            *link = (id, CREDIT);
        }
    }

    fn say(&mut self, index: usize, record: &[u8]) {
        let Some((id, _)) = self.links.get(index).copied() else {
            return;
        };
        if record.is_empty() {
            self.hub.handle_closed(self.now, id, CloseCause::Failed);
            self.open(index);
        } else {
            self.hub.handle_frame(self.now, id, record);
        }
    }

    fn drain(&mut self) {
        let mut buf = Vec::new();
        let mut moves = 0;
        loop {
            let mut moved = false;
            while let Some((id, command)) = self.hub.poll_command() {
                moved = true;
                let mut outcomes = Vec::new();
                self.store.execute([(id, command)], &mut outcomes);
                for (id, outcome) in outcomes {
                    self.hub.handle_completed(self.now, id, outcome);
                }
            }
            while let Some(outbound) = self.hub.poll_outbound(self.now, &mut buf) {
                moved = true;
                let link = self.links.iter_mut();
                let mut own = link.filter(|(id, _)| *id == outbound.connection);
                let (_, credit) = own.next().expect("a link that is open");
                let left = credit.checked_sub(buf.len());
                *credit = left.expect("no more than the credit covers");
                buf.clear();
            }
            while self.hub.poll_event().is_some() {}
            moves += 1;
            assert!(moves < 1_000, "it never comes to rest");
            if !moved {
                break;
            }
        }
        let held = self.hub.memory_bytes();
        assert!(held < 1 << 20, "{held} bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_reaches_mail_and_calls() {
        let world = live(include_bytes!("../corpus/hub_switch/mail_to_a_player"));
        let stats = world.hub.stats();
        assert_eq!((stats.mail_stored, stats.mail_given), (1, 1));
        assert_eq!(world.store.mail_count(), 0, "acknowledged");
        let world = live(include_bytes!("../corpus/hub_switch/mail_to_many"));
        let stats = world.hub.stats();
        assert_eq!((stats.mail_stored, stats.mail_given), (3, 1));
        assert_eq!(world.store.mail_count(), 2, "one has acknowledged");
        let world = live(include_bytes!("../corpus/hub_switch/groups"));
        let stats = world.hub.stats();
        assert_eq!((stats.mail_stored, stats.mail_given), (2, 1));
        assert_eq!((stats.forwards, stats.forwards_offline), (1, 1));
        let world = live(include_bytes!("../corpus/hub_switch/call_and_answer"));
        let stats = world.hub.stats();
        assert_eq!((stats.calls, stats.calls_failed), (1, 0));
        assert_eq!((stats.replies_unknown, stats.broadcasts), (0, 2));
        let world = live(include_bytes!("../corpus/hub_switch/live_messages"));
        let stats = world.hub.stats();
        assert_eq!((stats.forwards, stats.forwards_offline), (2, 1));
        assert_eq!((stats.casts, stats.kicks_refused), (3, 1));
        assert_eq!(stats.calls_cancelled, 1);
        let world = live(include_bytes!("../corpus/hub_switch/comes_back"));
        assert_eq!(world.hub.holder(wire::ClientId(1)), None, "it left");
        assert_eq!(world.hub.nodes().count(), 2);
    }
}
