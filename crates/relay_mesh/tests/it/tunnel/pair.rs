//! Two ends of a tunnel, their drivers, and the links between them.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use crypto::Identity;
use crypto::tls::TlsIdentity;
use netsim::provider::SimProvider;
use netsim::{Chance, Link, LinkConfig, Loss};
use relay_mesh::tunnel::{
    ConnEnd, ConnId, OpenError, OpenRecord, Refusal, Tunnel, TunnelConfig, TunnelEnd, TunnelEvent,
};
use wire::{Instant, Seed};

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) entry: End,
    pub(super) exit: End,
    /// To the exit, and to the entry.
    links: [Link; 2],
    /// Datagrams in flight by arrival time and number, with direction and bytes.
    on_the_way: BTreeMap<(Instant, u64), (Way, Vec<u8>)>,
    sent: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToExit,
    ToEntry,
}

/// One end, and a driver that acts only on events.
pub(super) struct End {
    pub(super) tunnel: Tunnel,
    pub(super) talks: BTreeMap<ConnId, Talk>,
    pub(super) answer: Answer,
    pub(super) down: Option<TunnelEnd>,
}

/// A driver's state of one connection.
#[derive(Default)]
pub(super) struct Talk {
    /// The open record, at an exit.
    pub(super) open: Option<OpenRecord>,
    pub(super) is_accepted: bool,
    pub(super) to_write: VecDeque<u8>,
    pub(super) written: usize,
    /// Whether the half closes after that.
    pub(super) closes: Closes,
    pub(super) got: Vec<u8>,
    pub(super) reading: Reading,
    /// Whether the remote end has sent everything.
    pub(super) has_all: bool,
    pub(super) end: Option<ConnEnd>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Closes {
    #[default]
    Never,
    Behind,
    Done,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Reading {
    #[default]
    All,
    Nothing,
}

/// How an exit's driver answers an open request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Accept,
    Refuse(Refusal),
    Silence,
}

impl Pair {
    pub(super) fn new(seed: Seed, config: &TunnelConfig, link: LinkConfig) -> Self {
        Self::between(seed, [config, config], link, Faces::Honest)
    }

    pub(super) fn between(
        seed: Seed,
        [entry, exit]: [&TunnelConfig; 2],
        link: LinkConfig,
        faces: Faces,
    ) -> Self {
        let mut provider = SimProvider::new(seed);
        let identities = [(); 3].map(|()| Identity::generate(&mut provider).unwrap());
        let [one, other, outsider] = identities.map(|id| TlsIdentity::new(&id).unwrap());
        let (at_entry, at_exit) = match faces {
            Faces::Honest => (&one, &other),
            Faces::OtherEntry => (&outsider, &other),
            Faces::OtherExit => (&one, &outsider),
        };
        let now = Instant::from_millis(5);
        let times = (epoch(), now);
        let entry = Tunnel::entry((1, entry), at_entry, other.node_id(), times).unwrap();
        let exit = Tunnel::exit((2, exit), at_exit, one.node_id(), times).unwrap();
        let links = [1, 2].map(|number| Link::new(link, seed.generator(number)));
        Self {
            now,
            entry: End::new(entry),
            exit: End::new(exit),
            links,
            on_the_way: BTreeMap::new(),
            sent: 0,
        }
    }

    /// Opens a player's connection, sends `words` and then closes as given.
    pub(super) fn open(
        &mut self,
        player: &str,
        words: &[u8],
        closes: Closes,
    ) -> Result<ConnId, OpenError> {
        let conn = self.entry.tunnel.open(self.now, &record(player))?;
        let talk = Talk {
            to_write: words.iter().copied().collect(),
            closes,
            ..Talk::default()
        };
        self.entry.talks.insert(conn, talk);
        self.entry.write(conn);
        Ok(conn)
    }

    pub(super) fn set_links(&mut self, config: LinkConfig) {
        for link in &mut self.links {
            link.set_config(config);
        }
    }

    pub(super) fn run(&mut self, span: Duration) {
        let until = self.now + span;
        self.run_until(until, |_| false);
        self.now = until;
    }

    /// Runs until `is_over` or for `span`. Returns false if `is_over` never was true.
    pub(super) fn run_until_or(&mut self, span: Duration, is_over: impl Fn(&Self) -> bool) -> bool {
        let until = self.now + span;
        self.run_until(until, &is_over);
        is_over(self)
    }

    fn run_until(&mut self, until: Instant, is_over: impl Fn(&Self) -> bool) {
        loop {
            self.drain();
            if is_over(self) {
                return;
            }
            let arrival = self.on_the_way.first_key_value().map(|((at, _), _)| *at);
            let timers = [
                self.entry.tunnel.poll_timeout(),
                self.exit.tunnel.poll_timeout(),
            ];
            let next = timers.into_iter().chain([arrival]).flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else {
                return;
            };
            assert!(next >= self.now, "a deadline in the past");
            self.now = next;
            self.deliver();
            for end in [&mut self.entry, &mut self.exit] {
                end.tunnel.handle_timeout(next);
                let due = end.tunnel.poll_timeout();
                assert!(
                    due.is_none_or(|due| due > next),
                    "a timer that is always due"
                );
            }
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.on_the_way.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            let (way, datagram) = entry.remove();
            let end = match way {
                Way::ToExit => &mut self.exit,
                Way::ToEntry => &mut self.entry,
            };
            end.tunnel.handle_datagram(self.now, &datagram);
            end.take_events();
        }
    }

    fn drain(&mut self) {
        let ways = [Way::ToExit, Way::ToEntry];
        let ends = [&mut self.entry, &mut self.exit];
        for ((end, way), link) in ends.into_iter().zip(ways).zip(&mut self.links) {
            end.take_events();
            let mut datagram = Vec::new();
            while let Some(len) = end.tunnel.poll_transmit(self.now, &mut datagram) {
                assert!(len == datagram.len() && len <= 1_232);
                for delivery in link.send(self.now, len) {
                    let key = (delivery.at, self.sent);
                    self.sent += 1;
                    self.on_the_way.insert(key, (way, datagram.clone()));
                }
                datagram.clear();
                end.take_events();
            }
        }
    }
}

/// The keys of both ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Faces {
    Honest,
    /// The entry has another key than the exit expects.
    OtherEntry,
    /// The exit has another key than the entry expects.
    OtherExit,
}

impl End {
    const fn new(tunnel: Tunnel) -> Self {
        Self {
            tunnel,
            talks: BTreeMap::new(),
            answer: Answer::Accept,
            down: None,
        }
    }

    pub(super) fn talk(&mut self) -> &mut Talk {
        assert_eq!(self.talks.len(), 1);
        self.talks.values_mut().next().unwrap()
    }

    pub(super) fn conn(&self) -> ConnId {
        assert_eq!(self.talks.len(), 1);
        *self.talks.keys().next().unwrap()
    }

    pub(super) fn transmit(&mut self, conn: ConnId, words: &[u8], closes: Closes) {
        let talk = self.talks.get_mut(&conn).unwrap();
        talk.to_write.extend(words);
        talk.closes = closes;
        self.write(conn);
    }

    pub(super) fn read_from_now_on(&mut self, conn: ConnId) {
        self.talks.get_mut(&conn).unwrap().reading = Reading::All;
        self.read(conn);
    }

    fn write(&mut self, conn: ConnId) {
        let talk = self.talks.get_mut(&conn).unwrap();
        let bytes = talk.to_write.make_contiguous();
        let Ok(taken) = self.tunnel.write(conn, bytes) else {
            return;
        };
        talk.to_write.drain(..taken);
        talk.written += taken;
        if talk.to_write.is_empty() && talk.closes == Closes::Behind {
            talk.closes = Closes::Done;
            self.tunnel.finish(conn).unwrap();
        }
    }

    fn read(&mut self, conn: ConnId) {
        let talk = self.talks.get_mut(&conn).unwrap();
        while talk.reading == Reading::All {
            let bytes = self.tunnel.readable(conn);
            let len = bytes.len();
            if len == 0 {
                return;
            }
            talk.got.extend_from_slice(bytes);
            self.tunnel.consume(conn, len);
        }
    }

    pub(super) fn take_events(&mut self) {
        while let Some(event) = self.tunnel.poll_event() {
            match event {
                TunnelEvent::Asked { conn, open } => self.on_asked(conn, open),
                TunnelEvent::Accepted { conn } => {
                    self.talks.get_mut(&conn).unwrap().is_accepted = true;
                }
                TunnelEvent::Readable { conn } => self.read(conn),
                TunnelEvent::Writable { conn } => self.write(conn),
                TunnelEvent::Finished { conn } => {
                    self.talks.get_mut(&conn).unwrap().has_all = true;
                }
                TunnelEvent::Ended { conn, end } => {
                    self.talks.get_mut(&conn).unwrap().end = Some(end);
                }
                TunnelEvent::Down { end } => self.down = Some(end),
                TunnelEvent::Up | _ => {}
            }
        }
    }

    fn on_asked(&mut self, conn: ConnId, open: OpenRecord) {
        let talk = Talk {
            open: Some(open),
            ..Talk::default()
        };
        self.talks.insert(conn, talk);
        match self.answer {
            Answer::Accept => self.tunnel.accept(conn).unwrap(),
            Answer::Refuse(why) => self.tunnel.refuse(conn, why).unwrap(),
            Answer::Silence => {}
        }
    }
}

/// A pair over calm links with default limits.
pub(super) fn quiet() -> Pair {
    Pair::new(Seed::from_number(1), &TunnelConfig::default(), calm())
}

/// A round trip of 40 ms without loss.
pub(super) fn calm() -> LinkConfig {
    LinkConfig::default().with_delay(Duration::from_millis(20))
}

/// The same, but each direction loses `per_mille` of 1,000, duplicates 10 and reorders some.
pub(super) fn lossy(per_mille: u32) -> LinkConfig {
    let chance = |per_mille| Chance::per_million(per_mille * 1_000);
    calm()
        .with_loss(Loss::Bernoulli(chance(per_mille)))
        .with_duplicate(chance(10))
        .with_reorder(chance(10), Duration::from_millis(5))
}

pub(super) fn record(player: &str) -> OpenRecord {
    let player: SocketAddr = player.parse().unwrap();
    OpenRecord {
        game: "web".into(),
        player,
        listen: "192.0.2.200:443".parse().unwrap(),
    }
}

/// Bytes that show whether one is missing, duplicated or from another stream.
pub(super) fn words(len: usize, salt: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)).to_le_bytes()[0] ^ salt)
        .collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the standard library's time has no number; only differences to this one count"
)]
fn epoch() -> std::time::Instant {
    std::time::Instant::now()
}
