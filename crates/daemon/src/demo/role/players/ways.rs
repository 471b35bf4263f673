//! The sessions of one player, and by which of them it plays.
//!
//! One goes through the mesh, one directly; the player plays by the one that is faster, and keeps
//! the other warm. A third one measures the direct way, whatever the player does.

use std::time::Duration;

use crypto::Ring;
use udp_proto::{ConnectError, Endpoint, SessionId, Target};
use wire::Instant;

use super::probe::{Probe, Use};
use crate::talk::UNRELIABLE;

/// Whom a player connects to.
#[derive(Debug)]
pub(in crate::demo::role) struct Targets {
    /// To play through the mesh, where that is the shortest way.
    pub(in crate::demo::role) through: Option<Target>,
    /// To play directly.
    pub(in crate::demo::role) direct: Target,
    /// To measure the direct way.
    pub(in crate::demo::role) measure: Target,
}

/// The sessions of one player.
#[derive(Debug, Default)]
pub(super) struct Ways {
    through: Option<Line>,
    direct: Line,
    pub(super) measure: Line,
    /// Whether it plays directly although it could go through the mesh.
    is_aside: bool,
    /// Since when the other way has been better.
    better_since: Option<Instant>,
    /// Round trips of the session in use, microseconds.
    pub(super) played_us: Vec<u32>,
    /// Round trips of the session that measures, microseconds.
    pub(super) measured_us: Vec<u32>,
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
        if let Some(through) = targets.through {
            self.through = Some(Line {
                session: Some(endpoint.connect(now, through)?),
                ..Line::default()
            });
        }
        self.direct.session = Some(endpoint.connect(now, targets.direct)?);
        self.measure.session = Some(endpoint.connect(now, targets.measure)?);
        Ok(())
    }

    /// Takes word that a session is open; returns whether all are.
    pub(super) fn on_connected(&mut self, session: SessionId) -> bool {
        for line in self.lines() {
            line.is_open |= line.session == Some(session);
        }
        self.lines().all(|line| line.is_open)
    }

    /// Takes word that a session has ended; returns whether the player goes on without it.
    pub(super) fn on_lost(&mut self, session: SessionId) -> bool {
        let lost = self.through.take_if(|line| line.session == Some(session));
        lost.is_some()
    }

    /// Takes what came back of a ping.
    pub(super) fn on_echo(&mut self, now: Instant, session: SessionId, number: [u8; 4]) {
        let played = self.played().session;
        let span = self
            .lines()
            .find(|line| line.session == Some(session))
            .and_then(|line| line.probe.on_echo(now, number));
        let Some(span) = span else {
            return;
        };
        let samples = if played == Some(session) {
            &mut self.played_us
        } else if self.measure.session == Some(session) {
            &mut self.measured_us
        } else {
            return;
        };
        if samples.len() < SAMPLES_MAX {
            samples.push(u32::try_from(span.as_micros()).unwrap_or(u32::MAX));
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

    /// The session that the player plays by.
    pub(super) const fn played(&self) -> &Line {
        match &self.through {
            Some(through) if !self.is_aside => through,
            Some(_) | None => &self.direct,
        }
    }

    /// Returns whether the player plays through the mesh.
    pub(super) const fn is_entered(&self) -> bool {
        self.through.is_some() && !self.is_aside
    }

    /// Returns whether a session is one to play by.
    pub(super) fn is_for_play(&self, session: SessionId) -> bool {
        let through = self.through.as_ref().and_then(|line| line.session);
        through == Some(session) || self.direct.session == Some(session)
    }

    /// Counts datagrams without an answer.
    pub(super) fn lost(&self, from: Instant, to: Instant) -> u32 {
        let through = self.through.as_ref();
        let through = through.map_or(0, |line| line.probe.lost(from, to));
        through.saturating_add(self.direct.probe.lost(from, to))
    }

    /// Forgets the round trips so far: the match begins.
    pub(super) fn clear_samples(&mut self) {
        self.played_us.clear();
        self.measured_us.clear();
    }

    fn choose(&mut self, now: Instant) {
        let Some(through) = &self.through else {
            return;
        };
        let (here, there) = if self.is_aside {
            (&self.direct, through)
        } else {
            (through, &self.direct)
        };
        let is_due = match (here.probe.recent(now), there.probe.recent(now)) {
            (None, Some(_)) => true,
            (Some(here), Some(there)) if there + GAIN_MIN.max(here / 20) < here => {
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

    fn lines(&mut self) -> impl Iterator<Item = &mut Line> {
        let fixed = [&mut self.direct, &mut self.measure];
        self.through.iter_mut().chain(fixed)
    }
}

/// What the other way must save to be taken; or a twentieth, if that is more.
const GAIN_MIN: Duration = Duration::from_millis(3);
/// How long it must do so.
const CONFIRMATION: Duration = Duration::from_millis(500);
/// Round trips remembered: an hour of one a tick.
const SAMPLES_MAX: usize = 108_000;
