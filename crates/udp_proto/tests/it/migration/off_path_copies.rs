//! T5: an off-path attacker sends copies of packets from his own addresses, and they arrive first.

use core::net::SocketAddr;
use core::time::Duration;

use udp_proto::SessionId;

use crate::amplification::open_by_a_copy;
use crate::direct::{Line, Sent};
use crate::harness::{RELIABLE, UNRELIABLE};

const TICK: Duration = Duration::from_millis(16);

/// A session and the attacker's accounting.
struct Race {
    line: Line,
    session: SessionId,
    theirs: SessionId,
    /// For each address of the attacker: bytes sent to it and received from it.
    ledger: Vec<(SocketAddr, usize, usize)>,
}

/// What the attacker does in a tick.
#[derive(Clone, Copy)]
enum Copier {
    /// His copies arrive first, with this source; he forwards what is sent there to the client.
    Faster(SocketAddr),
    /// The same, but nothing is forwarded.
    Forges(SocketAddr),
    /// The client's packets arrive first, and he forwards what he receives.
    Slower,
    Silent,
}

/// An address of the copier's.
fn own(number: u16) -> SocketAddr {
    let [a, b] = number.to_be_bytes();
    SocketAddr::from(([100, 64, a, b], 666))
}

impl Race {
    fn new(seed: u64) -> Self {
        let mut line = Line::new(seed);
        let (session, theirs) = line.join(1);
        line.run(1_000);
        Self {
            line,
            session,
            theirs,
            ledger: Vec::new(),
        }
    }

    fn at(&self) -> Option<SocketAddr> {
        self.line.server.machine.peer_address(self.theirs)
    }

    fn entry(&mut self, at: SocketAddr) -> &mut (SocketAddr, usize, usize) {
        if let Some(index) = self.ledger.iter().position(|entry| entry.0 == at) {
            return &mut self.ledger[index];
        }
        self.ledger.push((at, 0, 0));
        self.ledger.last_mut().unwrap()
    }

    /// One tick: a message each way, and all resulting datagrams.
    fn tick(&mut self, copier: Copier) {
        self.line.now += TICK;
        let now = self.line.now;
        for (endpoint, session) in [
            (&mut self.line.client, self.session),
            (&mut self.line.server, self.theirs),
        ] {
            endpoint.wake(now);
            for channel in [UNRELIABLE, RELIABLE] {
                endpoint.machine.send(now, session, channel, &[5; 100]).ok();
            }
        }
        for _ in 0..4 {
            self.pass_on(copier);
        }
    }

    fn pass_on(&mut self, copier: Copier) {
        let (now, client) = (self.line.now, self.line.client.at);
        for Sent { bytes, .. } in self.line.client.drain(now) {
            if let Copier::Faster(at) | Copier::Forges(at) = copier {
                self.entry(at).2 += bytes.len();
                self.line.server.take(now, at, &bytes);
            }
            self.line.server.take(now, client, &bytes);
        }
        for Sent { to, bytes } in self.line.server.drain(now) {
            let is_relayed = match copier {
                Copier::Faster(_) | Copier::Slower => true,
                Copier::Forges(_) | Copier::Silent => false,
            };
            if to != client {
                self.entry(to).1 += bytes.len();
            }
            if to == client || is_relayed {
                let server = self.line.server.at;
                self.line.client.take(now, server, &bytes);
            }
        }
    }

    /// Runs ticks for `millis`, and counts how often the session moved to `at`.
    fn run(&mut self, millis: u64, copier: Copier, at: SocketAddr) -> usize {
        let mut count = 0;
        for _ in 0..millis / 16 {
            let was_there = self.at() == Some(at);
            self.tick(copier);
            count += usize::from(!was_there && self.at() == Some(at));
        }
        count
    }

    /// Checks, with the attacker silent, that the session lives and all reliable messages arrive.
    fn check_that_it_goes_on(&mut self) {
        let incoming = self.line.client.messages.len();
        self.run(15_000, Copier::Silent, own(0));
        assert_eq!(self.at(), Some(self.line.client.at));
        assert!(self.line.client.closes().is_empty() && self.line.server.closes().is_empty());
        assert!(self.line.client.messages.len() > incoming + 1_500);
    }
}

/// T5: he wins every race for 8 s except one per second, so the session returns and he moves it 8
/// times. Then he stops while the session is at his address.
#[test]
fn twp_t5_a_silent_attacker_diverts_a_session_until_the_next_packet() {
    let mut race = Race::new(31);
    let (client, attacker) = (race.line.client.at, own(1));
    let mut moves = 0;
    for second in 0..8 {
        moves += race.run(1_008, Copier::Faster(attacker), attacker);
        assert_eq!(race.at(), Some(attacker), "second {second}");
        if second < 7 {
            race.tick(Copier::Slower);
            assert_eq!(race.at(), Some(client), "a return is free");
        }
    }
    assert_eq!(moves, 8);
    race.tick(Copier::Silent);
    assert_eq!(race.at(), Some(client), "with the next packet");
    // For the rest of the minute he moves nothing while the real path is active.
    for _ in 0..30 {
        race.tick(Copier::Slower);
        race.tick(Copier::Faster(own(2)));
        race.tick(Copier::Slower);
        race.run(500, Copier::Slower, own(2));
        assert_eq!(race.at(), Some(client));
    }
    race.check_that_it_goes_on();
}

/// With a new address each second: the session remembers the peer's previous address.
#[test]
fn twp_t5_many_attacker_addresses_divert_a_session_no_longer() {
    let mut race = Race::new(32);
    let client = race.line.client.at;
    let mut moves = 0;
    for number in 1..=8 {
        moves += race.run(1_200, Copier::Faster(own(number)), own(number));
    }
    assert_eq!(moves, 8);
    race.tick(Copier::Silent);
    assert_eq!(race.at(), Some(client), "with the next packet");
    race.check_that_it_goes_on();
}

/// After more than a minute the session returns to an earlier address only after a challenge. Even
/// at the limit of moves per minute, it does not stay at a silent address.
#[test]
fn twp_t5_a_patient_attacker_cannot_block_the_path() {
    let mut race = Race::new(33);
    let client = race.line.client.at;
    race.run(70_000, Copier::Faster(own(100)), own(100));
    for number in 1..=8 {
        race.run(1_200, Copier::Faster(own(number)), own(number));
    }
    assert_eq!(race.at(), Some(own(8)));
    let mut ticks = 0;
    while race.at() != Some(client) {
        race.tick(Copier::Silent);
        ticks += 1;
        assert!(ticks < 1_500 / 16, "{ticks} ticks");
    }
    assert!(ticks > 1, "it is challenged");
    race.check_that_it_goes_on();
}

/// Copies with a victim's address as the source: at any moment the victim was sent at most what was
/// received in its name, whether it is another port of the player's host or another host.
#[test]
fn twp_t5_a_victim_receives_no_more_than_was_sent_in_its_name() {
    let mut race = Race::new(34);
    let client = race.line.client.at;
    let neighbour = SocketAddr::new(client.ip(), 9);
    for number in 0..60 {
        let victim = if number % 2 == 0 {
            neighbour
        } else {
            own(number)
        };
        for tick in 0..40 {
            // The server has more to send than the client.
            let (now, theirs) = (race.line.now, race.theirs);
            let server = &mut race.line.server.machine;
            server.send(now, theirs, UNRELIABLE, &[6; 1_000]).unwrap();
            let copier = match tick % 4 {
                0 => Copier::Forges(victim),
                _ => Copier::Silent,
            };
            race.tick(copier);
            for (at, sent, came) in &race.ledger {
                assert!(sent <= came, "{at}: {sent} for {came}");
            }
            assert_eq!(race.at(), Some(client));
        }
    }
    let sent: usize = race.ledger.iter().map(|(_, sent, _)| sent).sum();
    assert!(sent > 1_000, "some were asked, and copied to: {sent}");
    race.check_that_it_goes_on();
}

/// He wins each race with the source of a host that does not answer.
#[test]
fn twp_t5_a_silent_victim_gets_no_session() {
    for victim in [own(1), SocketAddr::from(([203, 0, 113, 9], 77))] {
        let mut race = Race::new(35);
        let client = race.line.client.at;
        assert_eq!(race.run(8_000, Copier::Forges(victim), victim), 0);
        assert_eq!(race.at(), Some(client));
        let (_, sent, came) = *race.entry(victim);
        assert!(0 < sent && sent <= came, "{sent} for {came}");
        race.check_that_it_goes_on();
    }
}

/// From the start, copies arrive first, each from a new address, until the address no longer
/// follows. Then the client is challenged and gets its session.
#[test]
fn twp_t5_copies_of_the_first_packets_exhaust_no_session() {
    let mut line = Line::new(36);
    open_by_a_copy(&mut line, own(0));
    let theirs = line.server.machine.sessions().next().unwrap();
    for number in 1..=12 {
        line.now = line.client.machine.poll_timeout().unwrap();
        line.client.wake(line.now);
        for Sent { bytes, .. } in line.client.drain(line.now) {
            line.server.take(line.now, own(number), &bytes);
        }
        let sent = line.server.drain(line.now);
        assert!(sent.iter().all(|sent| sent.to != line.client.at));
    }
    let at = line.server.machine.peer_address(theirs);
    assert_eq!(at, Some(own(8)), "it followed 8 times");
    line.run(5_000);
    let at = line.server.machine.peer_address(theirs);
    assert_eq!(at, Some(line.client.at));
    line.run(20_000);
    assert!(line.client.closes().is_empty() && line.server.closes().is_empty());
}
