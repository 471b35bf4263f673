use core::num::NonZeroU8;

use wire::{MatchId, Seed};

use super::*;
use crate::bundle::Shape;
use crate::chain::KEEP_TICKS;
use crate::input::Input;
use crate::message::{Direction, Mode, decode_chunk};
use crate::tick::InputDelay;
use crate::transfer::Incoming;

const PEER: PeerId = PeerId(7);

const SHAPE: Shape = Shape {
    seats: 1,
    width: u16::WIDTH,
};

/// A set of one spectator, and the match that it is shown.
struct Room {
    spectators: SpectatorSet,
    chain: Chain,
    begin: Tick,
    end: Tick,
    now: Instant,
    stats: SpectatorStats,
    /// The spectator's snapshot receiver.
    incoming: Incoming,
    /// Snapshots that arrived, by their first byte.
    whole: Vec<u8>,
    turns: usize,
}

impl Room {
    fn new(rate_bytes_per_s: u32) -> Self {
        let transfer = TransferLimits {
            rate_bytes_per_s,
            ..TransferLimits::default()
        };
        let limits = RepairLimits {
            ticks: 4,
            period_nanos: 16_666_666,
            report_ticks: SPECTATOR_REPORT_TICKS.into(),
            len_max: 1_000,
            reserved_len: 0,
            len_small: 0,
            burst: 64_000,
            gain: 1_200,
        };
        let set_config = SpectatorSetConfig {
            spectators_max: 10,
            ready_timeout: Duration::from_secs(30),
            transfer,
            limits,
        };
        let mut spectators = SpectatorSet::new(set_config, &mut Seed::from_number(1).generator(0));
        spectators.set_welcome(Welcome {
            mode: Mode::Clock,
            shape: SHAPE,
            seat: None,
            period_nanos: 16_666_666,
            input_delay: InputDelay::DEFAULT,
            repair: 4,
            hash_interval: NonZeroU8::MIN,
            match_id: MatchId([7; 16]),
        });
        Self {
            spectators,
            chain: Chain::new(SHAPE),
            begin: Tick(0),
            end: Tick(0),
            now: Instant::from_millis(1),
            stats: SpectatorStats::default(),
            incoming: Incoming::new(Direction::Down, 1 << 20),
            whole: Vec::new(),
            turns: 0,
        }
    }

    fn receive(&mut self, datagram: &[u8]) {
        let shown_ticks = ShownTicks {
            chain: &self.chain,
            begin: self.begin,
            end: self.end,
        };
        let received = (PEER, datagram);
        let (now, stats) = (self.now, &mut self.stats);
        assert!(
            self.spectators
                .on_datagram(now, &shown_ticks, received, stats)
        );
    }

    /// Shows all ticks before `end`; nothing changes in them.
    fn show(&mut self, end: u32) {
        let shown = self.end;
        self.end = Tick(end);
        for tick in shown.0.max(end.saturating_sub(CHAIN_LEN))..end {
            self.chain.put(Tick(tick), &[0x20]);
        }
        let shown_ticks = ShownTicks {
            chain: &self.chain,
            begin: self.begin,
            end: self.end,
        };
        let stats = &mut self.stats;
        self.spectators
            .on_shown(self.now, &shown_ticks, shown, stats);
        // Acknowledges all of them.
        let [.., high, low] = end.to_be_bytes();
        self.receive(&[0x02, high, low, 0x70]);
    }

    fn offer_snapshot(&mut self, next: u32, byte: u8) {
        self.spectators
            .offer_snapshot(Tick(next), vec![byte; 50_000].into());
    }

    /// Advances by `span`; datagrams arrive and are acknowledged.
    fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now += Duration::from_millis(5);
            let mut generator = Seed::from_number(2).generator(0);
            self.spectators.on_timeout(self.now, &mut generator);
            self.exchange();
        }
    }

    fn exchange(&mut self) {
        let mut buf = Vec::new();
        loop {
            buf.clear();
            let shown_ticks = ShownTicks {
                chain: &self.chain,
                begin: self.begin,
                end: self.end,
            };
            let stats = &mut self.stats;
            let sent = self
                .spectators
                .transmit(self.now, &shown_ticks, &mut buf, stats);
            if sent.is_none() {
                break;
            }
            if let Ok(chunk) = decode_chunk(&buf, Direction::Down) {
                self.incoming.on_chunk(self.now, &chunk);
                let whole = self.incoming.take();
                self.whole.extend(whole.map(|bytes| bytes[0]));
            } else {
                self.turns += usize::from(buf[0] == 0x82);
            }
        }
        buf.clear();
        while self.incoming.poll_ack(self.now, &mut buf) {
            let ack = core::mem::take(&mut buf);
            self.receive(&ack);
        }
    }
}

const READY_AT_0: [u8; 6] = [0x01, 2, 0, 0, 0, 0];

const ASK: [u8; 1] = [0x0b];

#[test]
fn a_needed_newer_snapshot_replaces_a_relays_running_transfer() {
    let mut room = Room::new(50_000);
    room.spectators
        .admit(room.now, PEER, SpectatorKind::Relay)
        .unwrap();
    room.receive(&READY_AT_0);
    room.show(100);
    // The snapshot is for the spectators that it serves.
    room.receive(&ASK);
    room.offer_snapshot(90, 1);
    room.show(101);
    room.run_for(Duration::from_millis(400));
    assert_eq!((room.stats.snapshots_begun, room.whole.len()), (1, 0));
    // All ticks shown from now on are later than those that it has.
    (room.begin, room.end) = (Tick(3_000), Tick(3_000));
    room.offer_snapshot(3_000, 2);
    let shown_ticks = ShownTicks {
        chain: &room.chain,
        begin: room.begin,
        end: room.end,
    };
    room.spectators.restart(room.now, &shown_ticks);
    room.show(3_001);
    room.run_for(Duration::from_secs(3));
    assert_eq!(room.whole, [2]);
    assert_eq!(room.spectators.members[0].state, SpectatorState::Watching);
    assert!(
        room.spectators.transfers.poll_timeout().is_none(),
        "all is done"
    );
    let turns = room.turns;
    room.show(3_002);
    room.exchange();
    assert!(room.turns > turns);
}

#[test]
fn a_late_snapshot_is_sent_to_all_waiting_and_kept_for_a_while() {
    let mut room = Room::new(1_250_000);
    room.spectators
        .admit(room.now, PEER, SpectatorKind::Relay)
        .unwrap();
    room.receive(&READY_AT_0);
    room.show(1_000);
    room.receive(&ASK);
    // The snapshot is 300 ticks old.
    room.offer_snapshot(700, 1);
    room.show(1_001);
    room.run_for(Duration::from_millis(100));
    assert_eq!(room.whole, [1]);
    let wants = |room: &Room| {
        let shown_ticks = ShownTicks {
            chain: &room.chain,
            begin: room.begin,
            end: room.end,
        };
        room.spectators.wants_snapshot(&shown_ticks)
    };
    // 256 ticks later it is too old for new requests, although 50 kB would still arrive in time.
    room.spectators.members[0].snapshot_from = Instant::ZERO;
    room.show(1_001 + KEEP_TICKS);
    room.receive(&ASK);
    assert!(!wants(&room));
    room.run_for(Duration::from_millis(100));
    assert_eq!(room.whole, [1, 1]);
    room.spectators.members[0].snapshot_from = Instant::ZERO;
    room.show(1_002 + KEEP_TICKS);
    room.receive(&ASK);
    assert!(wants(&room));
    // A snapshot that would arrive too late is not sent.
    room.offer_snapshot(400, 2);
    room.show(1_003 + KEEP_TICKS);
    room.run_for(Duration::from_millis(100));
    assert_eq!(room.whole, [1, 1]);
    assert!(wants(&room));
}
