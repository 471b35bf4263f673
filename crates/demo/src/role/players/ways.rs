//! The sessions of one player, and by which of them it plays.
//!
//! One goes the way that the player was told to play by: through the mesh, or directly. A second one
//! goes directly: where the first goes through the mesh, the player plays by the one that is
//! faster, and keeps the other warm. A third one measures the direct way, whatever the player does.

use std::time::Duration;

use crypto::Ring;
use udp_proto::{ConnectError, Endpoint, SessionId, Target};
use wire::Instant;

use super::probe::{Probe, Use};
use crate::talk::UNRELIABLE;

/// The way that a player was told to play by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::role) enum Told {
    /// Through the mesh.
    Through,
    /// As without one.
    #[default]
    Direct,
}

/// Whom a player connects to.
#[derive(Debug)]
pub(in crate::role) struct Targets {
    /// Where `play` leads.
    pub(in crate::role) told: Told,
    /// To play by the way that it was told.
    pub(in crate::role) play: Target,
    /// To play directly.
    pub(in crate::role) fallback: Target,
    /// To measure the direct way.
    pub(in crate::role) measure: Target,
}

/// The sessions of one player.
#[derive(Debug, Default)]
pub(super) struct Ways {
    told: Told,
    play: Line,
    fallback: Line,
    pub(super) measure: Line,
    /// Whether it plays directly although it could go through the mesh.
    is_aside: bool,
    /// Since when the other way has been better.
    better_since: Option<Instant>,
    pub(super) samples: Samples,
}

/// Round trips since the match began, in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    /// Of the session that measures.
    pub(super) direct: Vec<u32>,
    /// Of the session that goes the way that was told, in use or not.
    pub(super) told: Vec<u32>,
    /// Of the session in use.
    pub(super) played: Vec<u32>,
}

/// One session and its pings.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) session: Option<SessionId>,
    is_open: bool,
    probe: Probe,
}

impl Ways {
    /// Begins to connect all.
    pub(super) fn connect(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        targets: Targets,
    ) -> Result<(), ConnectError> {
        self.told = targets.told;
        self.play.session = Some(endpoint.connect(now, targets.play)?);
        self.fallback.session = Some(endpoint.connect(now, targets.fallback)?);
        self.measure.session = Some(endpoint.connect(now, targets.measure)?);
        Ok(())
    }

    /// Takes word that a session is open; returns whether all are.
    pub(super) fn on_connected(&mut self, session: SessionId) -> bool {
        for line in self.lines() {
            line.is_open |= line.session == Some(session);
        }
        self.lines().into_iter().all(|line| line.is_open)
    }

    /// Takes word that a session has ended; returns whether the player goes on without it.
    pub(super) fn on_lost(&mut self, session: SessionId) -> bool {
        let is_lost = self.told == Told::Through && self.play.session == Some(session);
        if is_lost {
            self.play = Line::default();
            self.is_aside = true;
        }
        is_lost
    }

    /// Takes what came back of a ping.
    pub(super) fn on_echo(&mut self, now: Instant, session: SessionId, number: [u8; 4]) {
        let session = Some(session);
        let span = {
            let mut lines = self.lines().into_iter();
            let line = lines.find(|line| line.session == session);
            line.and_then(|line| line.probe.on_echo(now, number))
        };
        let Some(span) = span else {
            return;
        };
        let span = u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
        let is_of = [&self.measure, &self.play, self.played()].map(|line| line.session == session);
        let Samples {
            direct,
            told,
            played,
        } = &mut self.samples;
        let of = is_of.into_iter().zip([direct, told, played]);
        for (is_of, samples) in of {
            if is_of && samples.len() < SAMPLES_MAX {
                samples.push(span);
            }
        }
    }

    /// Pings by all sessions, and plays by the faster one from then on.
    pub(super) fn ping(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        self.choose(now);
        let played = self.played().session;
        for line in self.lines() {
            if let (true, Some(session)) = (line.is_open, line.session) {
                let used = if played == Some(session) {
                    Use::Played
                } else {
                    Use::Idle
                };
                let ping = line.probe.ping(now, used);
                // A session that has ended is told of by its own event.
                endpoint.send(now, session, UNRELIABLE, &ping).ok();
            }
        }
    }

    /// Returns the way that the player was told.
    pub(super) const fn told(&self) -> Told {
        self.told
    }

    /// The session that the player plays by.
    pub(super) const fn played(&self) -> &Line {
        if self.is_aside {
            &self.fallback
        } else {
            &self.play
        }
    }

    /// Returns whether the player plays through the mesh.
    pub(super) const fn is_entered(&self) -> bool {
        matches!(self.told, Told::Through) && !self.is_aside
    }

    /// Returns whether a session is one to play by.
    pub(super) fn is_for_play(&self, session: SessionId) -> bool {
        let lines = [&self.play, &self.fallback];
        lines.iter().any(|line| line.session == Some(session))
    }

    /// Counts datagrams without an answer.
    pub(super) fn lost(&self, from: Instant, to: Instant) -> u32 {
        let lost = [&self.play, &self.fallback].map(|line| line.probe.lost(from, to));
        lost.into_iter().fold(0, u32::saturating_add)
    }

    /// Forgets the round trips so far: the match begins.
    pub(super) fn clear_samples(&mut self) {
        self.samples = Samples::default();
    }

    fn choose(&mut self, now: Instant) {
        if self.told == Told::Direct {
            return;
        }
        let (here, there) = if self.is_aside {
            (&self.fallback, &self.play)
        } else {
            (&self.play, &self.fallback)
        };
        let is_due = match (here.probe.recent(now), there.probe.recent(now)) {
            (None, Some(_)) => true,
            (Some(here), Some(there)) if there.saturating_add(gain_min(here)) < here => {
                let since = *self.better_since.get_or_insert(now);
                now.saturating_since(since) >= CONFIRMATION
            }
            (Some(_) | None, Some(_) | None) => {
                self.better_since = None;
                false
            }
        };
        if is_due {
            self.is_aside = !self.is_aside;
            self.better_since = None;
        }
    }

    const fn lines(&mut self) -> [&mut Line; 3] {
        [&mut self.play, &mut self.fallback, &mut self.measure]
    }
}

/// What the other way must save to be taken, of a way of so long: 3 ms, or a twentieth if that is more.
pub(crate) fn gain_min(here: Duration) -> Duration {
    GAIN_MIN.max(here.checked_div(20).unwrap_or_default())
}

const GAIN_MIN: Duration = Duration::from_millis(3);
/// How long it must do so.
const CONFIRMATION: Duration = Duration::from_millis(500);
/// Round trips remembered: an hour of one a tick.
const SAMPLES_MAX: usize = 108_000;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// What happens by each session: how long a ping takes there.
    struct Scene {
        ways: Ways,
        /// Of the lines, in their order.
        sessions: [SessionId; 3],
        now: Instant,
        /// Pings that are on their way: when each is back, by which line, and its number.
        under_way: VecDeque<(Instant, usize, [u8; 4])>,
    }

    impl Scene {
        fn new(told: Told) -> Self {
            let mut ways = Ways {
                told,
                ..Ways::default()
            };
            let sessions = sessions();
            for (line, session) in ways.lines().into_iter().zip(sessions) {
                line.session = Some(session);
                line.is_open = true;
            }
            Self {
                ways,
                sessions,
                now: Instant::ZERO,
                under_way: VecDeque::new(),
            }
        }

        /// Pings each 33 ms for `count` times; lines take so many milliseconds, in their order.
        fn ping(&mut self, count: u32, millis: [u64; 3]) {
            for _ in 0..count {
                self.ways.choose(self.now);
                let at = self.now;
                for (line, millis) in (0..).zip(millis) {
                    let [_, number @ ..] = self.ways.lines()[line].probe.ping(at, Use::Idle);
                    let back = at + Duration::from_millis(millis);
                    self.under_way.push_back((back, line, number));
                }
                self.now += Duration::from_millis(33);
                let now = self.now;
                for (back, line, number) in std::mem::take(&mut self.under_way) {
                    if back <= now {
                        self.ways.on_echo(back, self.sessions[line], number);
                    } else {
                        self.under_way.push_back((back, line, number));
                    }
                }
            }
        }

        fn medians(&self) -> [u64; 3] {
            let Samples {
                direct,
                told,
                played,
            } = self.ways.samples.clone();
            let of = |samples| crate::message::median(samples) / 1_000;
            [of(direct), of(told), of(played)]
        }
    }

    /// Three that an endpoint has begun.
    fn sessions() -> [SessionId; 3] {
        let now = Instant::ZERO;
        let config = udp_proto::Config::default();
        let mut endpoint = Endpoint::new(config, crate::plan::APP, Ring::new(), now).unwrap();
        [1, 2, 3].map(|port| {
            let target = Target {
                addresses: vec![([127, 0, 0, 1], port).into()],
                server: udp_proto::ServerIdentity::Node(wire::NodeId([7; 32])),
                credentials: udp_proto::Credentials::Open,
            };
            endpoint.connect(now, target).unwrap()
        })
    }

    #[test]
    fn a_mesh_that_became_slow_shows_although_the_player_goes_round_it() {
        let mut scene = Scene::new(Told::Through);
        scene.ping(100, [40, 60, 60]);
        assert!(scene.ways.is_entered());
        assert_eq!(scene.medians(), [60, 40, 40]);
        scene.ping(300, [200, 60, 60]);
        assert!(!scene.ways.is_entered());
        assert_eq!(scene.medians(), [60, 200, 60]);
    }

    #[test]
    fn who_is_told_to_go_directly_does_whatever_the_other_session_has() {
        let mut scene = Scene::new(Told::Direct);
        scene.ping(300, [60, 20, 60]);
        assert_eq!(scene.medians(), [60, 60, 60]);
        assert!(!scene.ways.is_entered());
        assert!(
            !scene.ways.on_lost(scene.sessions[0]),
            "it has no other way"
        );
    }

    #[test]
    fn a_mesh_session_that_ends_leaves_the_direct_one() {
        let mut scene = Scene::new(Told::Through);
        scene.ping(10, [40, 60, 60]);
        let [play, fallback, _] = scene.sessions;
        assert!(!scene.ways.on_lost(fallback));
        assert!(scene.ways.on_lost(play));
        scene.ping(100, [40, 60, 60]);
        assert!(!scene.ways.is_entered());
        assert_eq!(scene.ways.played().session, Some(fallback));
    }
}
