//! The sessions of one player, and which of them it uses for play.
//!
//! The first one takes the assigned route: through the mesh, or directly. The second one is direct.
//! If the first uses the mesh, the player plays on the faster of both and keeps the other warm. The
//! third one only measures the direct route.

use std::time::Duration;

use crypto::Ring;
use udp_proto::{ConnectError, Endpoint, SessionId, Target};
use wire::Instant;

use super::probe::{Probe, Use};
use crate::game_protocol::UNRELIABLE;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::role) enum AssignedRoute {
    Through,
    #[default]
    Direct,
}

#[derive(Debug)]
pub(in crate::role) struct Targets {
    pub(in crate::role) assigned: AssignedRoute,
    /// For play on the assigned route.
    pub(in crate::role) play: Target,
    /// For play on the direct route.
    pub(in crate::role) fallback: Target,
    /// For measuring the direct route.
    pub(in crate::role) measure: Target,
}

#[derive(Debug, Default)]
pub(super) struct Routes {
    pub(super) assigned: AssignedRoute,
    play: Line,
    fallback: Line,
    pub(super) measure: Line,
    /// Whether the player plays directly although its assigned route uses the mesh.
    uses_fallback: bool,
    /// Since when the other route has been faster.
    better_since: Option<Instant>,
    pub(super) samples: Samples,
}

/// Round trips since the match began, microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    /// Of the measuring session.
    pub(super) direct: Vec<u32>,
    /// Of the session on the assigned route, in use or not.
    pub(super) assigned: Vec<u32>,
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

impl Routes {
    pub(super) fn connect(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        targets: Targets,
    ) -> Result<(), ConnectError> {
        self.assigned = targets.assigned;
        self.play.session = Some(endpoint.connect(now, targets.play)?);
        self.fallback.session = Some(endpoint.connect(now, targets.fallback)?);
        self.measure.session = Some(endpoint.connect(now, targets.measure)?);
        Ok(())
    }

    /// Records an open session; returns whether all are open.
    pub(super) fn on_connected(&mut self, session: SessionId) -> bool {
        for line in self.lines() {
            line.is_open |= line.session == Some(session);
        }
        self.lines().into_iter().all(|line| line.is_open)
    }

    /// Records an ended session; returns whether the player continues without it.
    pub(super) fn on_lost(&mut self, session: SessionId) -> bool {
        let is_lost = self.assigned == AssignedRoute::Through && self.play.session == Some(session);
        if is_lost {
            self.play = Line::default();
            self.uses_fallback = true;
        }
        is_lost
    }

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
            assigned,
            played,
        } = &mut self.samples;
        let of = is_of.into_iter().zip([direct, assigned, played]);
        for (is_of, samples) in of {
            if is_of && samples.len() < SAMPLES_MAX {
                samples.push(span);
            }
        }
    }

    /// Pings on all sessions, and selects the faster one for play.
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
                // If a session has ended, its own event reports that.
                endpoint.send(now, session, UNRELIABLE, &ping).ok();
            }
        }
    }

    pub(super) const fn played(&self) -> &Line {
        if self.uses_fallback {
            &self.fallback
        } else {
            &self.play
        }
    }

    pub(super) const fn is_entered(&self) -> bool {
        matches!(self.assigned, AssignedRoute::Through) && !self.uses_fallback
    }

    pub(super) fn is_for_play(&self, session: SessionId) -> bool {
        let lines = [&self.play, &self.fallback];
        lines.iter().any(|line| line.session == Some(session))
    }

    pub(super) fn lost(&self, from: Instant, to: Instant) -> u32 {
        let lost = [&self.play, &self.fallback].map(|line| line.probe.lost(from, to));
        lost.into_iter().fold(0, u32::saturating_add)
    }

    /// Drops the samples so far: the match begins.
    pub(super) fn clear_samples(&mut self) {
        self.samples = Samples::default();
    }

    fn choose(&mut self, now: Instant) {
        if self.assigned == AssignedRoute::Direct {
            return;
        }
        let (here, there) = if self.uses_fallback {
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
            self.uses_fallback = !self.uses_fallback;
            self.better_since = None;
        }
    }

    const fn lines(&mut self) -> [&mut Line; 3] {
        [&mut self.play, &mut self.fallback, &mut self.measure]
    }
}

/// Minimum saving for a change to the other route: 3 ms, or a twentieth of `here` if that is more.
pub(crate) fn gain_min(here: Duration) -> Duration {
    GAIN_MIN.max(here.checked_div(20).unwrap_or_default())
}

const GAIN_MIN: Duration = Duration::from_millis(3);
const CONFIRMATION: Duration = Duration::from_millis(500);
/// Samples kept: an hour at one a tick.
const SAMPLES_MAX: usize = 108_000;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Emulates each session: how long a ping takes there.
    struct Setup {
        routes: Routes,
        /// Of the lines, in their order.
        sessions: [SessionId; 3],
        now: Instant,
        /// Pings in flight: arrival of the answer, line, number.
        under_way: VecDeque<(Instant, usize, [u8; 4])>,
    }

    impl Setup {
        fn new(assigned: AssignedRoute) -> Self {
            let mut routes = Routes {
                assigned,
                ..Routes::default()
            };
            let sessions = sessions();
            for (line, session) in routes.lines().into_iter().zip(sessions) {
                line.session = Some(session);
                line.is_open = true;
            }
            Self {
                routes,
                sessions,
                now: Instant::ZERO,
                under_way: VecDeque::new(),
            }
        }

        /// Pings every 33 ms, `count` times; `millis` are the round trips of the lines, in order.
        fn ping(&mut self, count: u32, millis: [u64; 3]) {
            for _ in 0..count {
                self.routes.choose(self.now);
                let at = self.now;
                for (line, millis) in (0..).zip(millis) {
                    let [_, number @ ..] = self.routes.lines()[line].probe.ping(at, Use::Idle);
                    let back = at + Duration::from_millis(millis);
                    self.under_way.push_back((back, line, number));
                }
                self.now += Duration::from_millis(33);
                let now = self.now;
                for (back, line, number) in std::mem::take(&mut self.under_way) {
                    if back <= now {
                        self.routes.on_echo(back, self.sessions[line], number);
                    } else {
                        self.under_way.push_back((back, line, number));
                    }
                }
            }
        }

        fn medians(&self) -> [u64; 3] {
            let Samples {
                direct,
                assigned,
                played,
            } = self.routes.samples.clone();
            let of = |samples| crate::message::median(samples) / 1_000;
            [of(direct), of(assigned), of(played)]
        }
    }

    /// Three sessions that an endpoint has opened.
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
    fn a_slow_mesh_is_found_although_players_avoid_it() {
        let mut setup = Setup::new(AssignedRoute::Through);
        setup.ping(100, [40, 60, 60]);
        assert!(setup.routes.is_entered());
        assert_eq!(setup.medians(), [60, 40, 40]);
        setup.ping(300, [200, 60, 60]);
        assert!(!setup.routes.is_entered());
        assert_eq!(setup.medians(), [60, 200, 60]);
    }

    #[test]
    fn a_direct_assignment_is_kept_with_any_other_session() {
        let mut setup = Setup::new(AssignedRoute::Direct);
        setup.ping(300, [60, 20, 60]);
        assert_eq!(setup.medians(), [60, 60, 60]);
        assert!(!setup.routes.is_entered());
        assert!(
            !setup.routes.on_lost(setup.sessions[0]),
            "it has no other way"
        );
    }

    #[test]
    fn a_player_continues_directly_if_its_mesh_session_ends() {
        let mut setup = Setup::new(AssignedRoute::Through);
        setup.ping(10, [40, 60, 60]);
        let [play, fallback, _] = setup.sessions;
        assert!(!setup.routes.on_lost(fallback));
        assert!(setup.routes.on_lost(play));
        setup.ping(100, [40, 60, 60]);
        assert!(!setup.routes.is_entered());
        assert_eq!(setup.routes.played().session, Some(fallback));
    }
}
