//! Players that prolong a bisection as much as possible.

use core::time::Duration;

use lockstep::message::VERSION;
use lockstep::{Cause, Config, MatchServer, PeerId, ServerEvent, StartPolicy, StateHasher, Tick};
use wire::{Arrival, Instant, Seat, Seed};

use crate::alloc::held;
use crate::hostile::Forge;
use crate::world::MATCH;

const TICK: Duration = Duration::from_nanos(16_666_667);

/// A server, simulating or not, and players with hand-written datagrams.
struct Table {
    server: MatchServer<u16>,
    now: Instant,
    simulates: bool,
    events: Vec<ServerEvent>,
    /// Questions, and their recipients.
    asked: Vec<(PeerId, Vec<u8>)>,
}

impl Table {
    fn new(seats: u16) -> Self {
        let now = Instant::from_millis(1);
        let mut config = Config::default();
        config.seats = seats;
        config.start = StartPolicy::ByHand;
        let mut server = MatchServer::new(config, MATCH, Seed::from_number(1), now).unwrap();
        for index in 0..seats {
            server.join(now, PeerId(index.into()), Seat(index)).unwrap();
        }
        for index in 0..seats {
            let arrival = Arrival::from(PeerId(index.into()));
            server.handle_datagram(now, arrival, &mut [1, VERSION, 0, 0, 0, 0]);
        }
        server.start(now).unwrap();
        let mut table = Self {
            server,
            now,
            simulates: false,
            events: Vec::new(),
            asked: Vec::new(),
        };
        table.pass(TICK * 4);
        table
    }

    fn answer(&mut self, peer: u16, mut datagram: Vec<u8>) {
        let arrival = Arrival::from(PeerId(peer.into()));
        self.server
            .handle_datagram(self.now, arrival, &mut datagram);
    }

    /// Makes a player report a hash of tick 0, and acknowledge the first two ticks.
    fn report(&mut self, peer: u16, hash: u64) {
        let forged = Forge::new(2).bits(2, 16).bits(0, 1).gamma(0);
        let forged = forged.gamma(1).gamma(1).bits(hash, 32).gamma(0);
        self.answer(peer, forged.0);
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        let mut buf = Vec::new();
        loop {
            while self.simulates
                && let Some(turn) = self.server.poll_turn()
            {
                let tick = turn.tick();
                let mut state = StateHasher::new(MATCH);
                state.section("units");
                self.server.report_state(tick, &state).unwrap();
            }
            while let Some(to) = self.server.poll_transmit(self.now, &mut buf) {
                if buf[0] == 0x88 {
                    self.asked.push((to.destination, buf.clone()));
                }
                buf.clear();
            }
            self.events
                .extend(core::iter::from_fn(|| self.server.poll_event()));
            if self.now >= end {
                break;
            }
            self.now += TICK;
            self.server.handle_timeout(self.now);
        }
    }

    fn found(&self) -> Vec<(Seat, Tick, Cause)> {
        let found = self.events.iter().filter_map(|event| {
            if let ServerEvent::Divergence {
                seat, tick, cause, ..
            } = event
            {
                Some((*seat, *tick, *cause))
            } else {
                None
            }
        });
        found.collect()
    }
}

#[test]
fn a_peer_that_never_answers_delays_no_other_and_costs_few_questions() {
    for simulates in [false, true] {
        let mut table = Table::new(3);
        table.simulates = simulates;
        table.pass(TICK);
        (0..3).for_each(|peer| table.report(peer, if peer == 1 { 7 } else { 8 }));
        table.pass(Duration::from_secs(30));
        let found = table.found();
        let expected = |seat| (Seat(seat), Tick(0), Cause::Unknown);
        if simulates {
            assert_eq!(found, [0, 1, 2].map(expected), "all three lie");
        } else {
            assert_eq!(found, [expected(1)]);
        }
        // For each player, whether suspected or witness: 4 s for an answer, and 4 s for the
        // notification.
        for peer in 0..3 {
            let asked = table.asked.iter().filter(|(to, _)| *to == PeerId(peer));
            assert!(asked.count() <= 2 * 41, "{peer}");
        }
        let stats = *table.server.stats();
        assert!(table.server.ticks_closed() > 1_700);
        table.pass(Duration::from_secs(10));
        assert_eq!(
            table.server.stats().bisect_questions,
            stats.bisect_questions
        );
    }
}

#[test]
fn unrequested_answers_are_counted_and_use_no_memory() {
    let mut table = Table::new(3);
    (0..3).for_each(|peer| table.report(peer, if peer == 1 { 7 } else { 8 }));
    table.pass(Duration::ZERO);
    assert_eq!(table.asked.len(), 2, "{:?}", table.asked);
    assert!(
        table
            .asked
            .iter()
            .all(|(_, question)| *question == [0x88, 1, 0, 0])
    );
    let sections = |tick: u8, name: &[u8]| {
        let head = [6, 1, 0, tick, 1, 0, 0, 0, 9, 1, 0, 0, 0, 5];
        let len = u8::try_from(name.len()).unwrap();
        [&head[..], &[len], name].concat()
    };
    let ticks = vec![6, 0, 0, 0, 1, 0x80, 0, 0, 0, 7];
    let acknowledged = vec![6, 2, 0, 0, 0, 1];
    let before = held();
    let refused = table.server.stats().bisect_refused;
    for _ in 0..1_000 {
        // Answers for another tick, of another form, and from a player that was not asked.
        table.answer(1, sections(1, b"units"));
        table.answer(1, ticks.clone());
        table.answer(1, acknowledged.clone());
        table.answer(2, sections(0, b"units"));
    }
    assert_eq!(table.server.stats().bisect_refused, refused + 4_000);
    assert_eq!(held(), before);
    assert_eq!(table.found(), []);
    // Names must be printable UTF-8.
    let malformed = table.server.stats().dropped_malformed;
    table.answer(1, sections(0, b"\x1b[2J"));
    assert_eq!(table.server.stats().dropped_malformed, malformed + 1);
    // The first valid answer counts once.
    for _ in 0..3 {
        table.answer(1, sections(0, b"units"));
    }
    assert_eq!(table.server.stats().bisect_answers, 1);
    assert_eq!(table.server.stats().bisect_refused, refused + 4_002);
}

#[test]
fn a_match_that_ends_reports_the_known_results() {
    let mut table = Table::new(3);
    (0..3).for_each(|peer| table.report(peer, if peer == 1 { 7 } else { 8 }));
    table.server.close(table.now);
    table.pass(Duration::ZERO);
    assert_eq!(table.found(), [(Seat(1), Tick(0), Cause::Unknown)]);
    assert!(table.asked.is_empty());
}

#[test]
fn all_seats_at_once_are_bounded() {
    // 64 players against the server: at most one question and inquiry each.
    let mut table = Table::new(64);
    table.simulates = true;
    table.pass(TICK);
    let before = table.server.memory_len();
    (0..64).for_each(|peer| table.report(peer, u64::from(peer) + 7));
    table.pass(Duration::ZERO);
    assert_eq!(table.asked.len(), 64);
    // The longest answer from each: 64 sections.
    for peer in 0..64 {
        let mut datagram = vec![6, 1, 0, 0, 1, 0, 0, 0, 9, 64];
        datagram.extend([0xaa; 256]);
        datagram.extend([0; 64]);
        table.answer(peer, datagram);
    }
    table.pass(Duration::ZERO);
    let grown = table.server.memory_len() - before;
    assert!(grown <= 64 * 1_024, "{grown}");
    assert_eq!(table.found().len(), 64);
    table.pass(Duration::from_secs(5));
    assert_eq!(
        table.server.stats().bisect_questions,
        table.asked.len() as u64
    );
    assert!(table.asked.len() <= 64 * 42, "{}", table.asked.len());
}
