//! Which far ends are not reached directly, and who passes on what goes to them.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use udp_proto::SessionId;
use wire::{Instant, TokenBucket};

use super::peers::DETOUR_RATE;
use crate::link::LinkId;

/// All detours of a node, by far end.
#[derive(Debug, Default)]
pub(super) struct Detours {
    /// At most [`DETOURS_MAX`].
    pub(super) list: BTreeMap<LinkId, Detour>,
    /// Far ends that are wanted, dialled and not reached, and since when; of those whose session
    /// is renewed, from when on they count.
    pub(super) missing: BTreeMap<LinkId, Instant>,
    /// Exits that players of this node may be sent to, as they were last looked for.
    pub(super) exits: Vec<LinkId>,
    /// Whether the games did not change since.
    pub(super) knows_exits: bool,
    /// Sessions that began by a detour, and do not know what their direct path carries.
    pub(super) blind: BTreeMap<LinkId, SessionId>,
    /// Whose datagram came by its detour and is being taken.
    pub(super) taking: Option<LinkId>,
}

/// One detour.
#[derive(Debug)]
pub(super) struct Detour {
    /// Who passes on.
    pub(super) relay: LinkId,
    /// Where the far end is said to be.
    pub(super) address: SocketAddr,
    /// When a packet of the far end's session last came by it; when it began, before that.
    pub(super) heard: Instant,
    /// Whether one did.
    pub(super) is_proved: bool,
    /// Bytes that go directly meanwhile: nobody is known to be at that address.
    direct: TokenBucket,
    /// Bytes that go by it: what its relay passes on at most.
    going: TokenBucket,
    /// Of them, those that go while a path carries the session.
    copies: TokenBucket,
    /// Bytes that go over that path.
    over_path: TokenBucket,
    /// Bytes that come by it, as many, and once more at once: they may have waited on the way.
    coming: TokenBucket,
    /// Since when nothing goes by it, or last did not.
    quiet_since: Instant,
    /// Until when nothing goes by it.
    pub(super) quiet_until: Instant,
    /// Probes sent while it stands.
    probes: u32,
}

impl Detours {
    /// Whether what is being taken came from a far end by its detour.
    pub(super) fn is_taking(&self, far: LinkId) -> bool {
        self.taking == Some(far)
    }

    /// Who passes on what goes to a far end.
    pub(super) fn relay(&self, far: LinkId) -> Option<LinkId> {
        self.list.get(&far).map(|detour| detour.relay)
    }

    /// This node did not run for a while up to now: what waited for it is no silence.
    pub(super) fn on_stall(&mut self, now: Instant) {
        for detour in self.list.values_mut() {
            detour.heard = now;
        }
    }

    /// Takes note of the size check of a session; returns whether it was of the direct path.
    pub(super) fn on_size(&mut self, far: LinkId, session: SessionId) -> bool {
        let is_direct = self.list.get(&far).is_none_or(|detour| !detour.is_proved);
        if !is_direct {
            self.blind.insert(far, session);
        }
        is_direct
    }

    /// Whether a detour is to a node or over it.
    pub(super) fn names(&self, link: LinkId) -> bool {
        let mut standing = self.list.iter();
        standing.any(|(far, detour)| *far == link || detour.relay == link)
            || self.missing.contains_key(&link)
            || self.blind.contains_key(&link)
    }

    /// The direct way was heard, or is asked for alone: nothing goes by the detour for a moment, so
    /// that it is no faster.
    pub(super) fn pause_relay(&mut self, now: Instant, far: LinkId) {
        if let Some(detour) = self.list.get_mut(&far) {
            detour.pause_relay(now, QUIET);
        }
    }

    /// Whether what leaves for a far end now goes directly alone, where it may be lost.
    pub(super) fn is_quiet(&self, now: Instant, far: LinkId) -> bool {
        let detour = self.list.get(&far);
        detour.is_some_and(|detour| now < detour.quiet_until)
    }

    /// Takes note of a probe to a far end: one in five goes alone.
    pub(super) fn on_probe(&mut self, now: Instant, far: LinkId) {
        if let Some(detour) = self.list.get_mut(&far) {
            detour.probes = detour.probes.wrapping_add(1);
            if detour.probes.is_multiple_of(ALONE) {
                detour.pause_relay(now, ALONE_FOR);
            }
        }
    }

    /// Whether a detour may begin because a neighbour passed something on. Whoever makes it up leaves
    /// half of the places to those that are wanted here, and most of the others to other neighbours.
    pub(super) fn may_begin(&self, now: Instant, (far, relay): (LinkId, LinkId)) -> bool {
        let is_renewing = self.missing.get(&far).is_some_and(|since| now < *since);
        let made_up = self.list.values();
        let made_up = made_up.filter(|detour| detour.relay == relay && !detour.is_proved);
        !is_renewing && self.list.len() < DETOURS_MAX / 2 && made_up.count() < UNPROVED_MAX
    }

    /// Begins a detour that nothing has come by.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        far: LinkId,
        (relay, address): (LinkId, SocketAddr),
    ) {
        let detour = Detour {
            relay,
            address,
            heard: now,
            is_proved: false,
            direct: TokenBucket::new(DIRECT_RATE, DIRECT_RATE, now),
            going: TokenBucket::new(DETOUR_RATE, DETOUR_RATE, now),
            copies: TokenBucket::new(COPY_RATE, COPY_RATE * 2, now),
            over_path: TokenBucket::new(PATH_RATE, PATH_BURST, now),
            coming: TokenBucket::new(DETOUR_RATE, DETOUR_RATE * 2, now),
            quiet_since: now,
            quiet_until: now,
            probes: 0,
        };
        self.list.insert(far, detour);
    }
}

/// How a datagram of a session goes that goes by a detour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ways {
    /// Over the path in use.
    pub(super) path: Option<u8>,
    /// By the neighbour.
    pub(super) relay: bool,
}

impl Detour {
    /// Whether so many bytes may go directly.
    pub(super) fn may_go_directly(&mut self, now: Instant, len: u32) -> bool {
        self.direct.take(now, len)
    }

    /// How so many bytes go that are for the far end, beside the direct way.
    pub(super) fn ways(&mut self, now: Instant, len: u32, path: Option<u8>) -> Ways {
        let is_copy_due = path.is_none() || self.copies.take(now, len);
        let is_quiet = now < self.quiet_until;
        Ways {
            path: path.filter(|_| !is_quiet && self.over_path.take(now, len)),
            relay: is_copy_due && self.may_go(now, len),
        }
    }

    /// Whether so many bytes may go by it.
    pub(super) fn may_go(&mut self, now: Instant, len: u32) -> bool {
        now >= self.quiet_until && self.going.take(now, len)
    }

    /// Whether so many bytes that came by it may be taken.
    pub(super) fn may_come(&mut self, now: Instant, len: u32) -> bool {
        self.coming.take(now, len)
    }

    /// Nothing goes by it for a moment; for 2.5 s of each 3.5 s at most, whatever is heard.
    fn pause_relay(&mut self, now: Instant, span: Duration) {
        let is_quiet = now < self.quiet_until;
        if !is_quiet && now.saturating_since(self.quiet_until) >= NOISY {
            self.quiet_since = now;
        }
        if now.saturating_since(self.quiet_since) < QUIET_MAX {
            self.quiet_until = self.quiet_until.max(now + span);
        }
    }
}

/// Bytes a second by the neighbour while a path carries the session, and twice as many at once: the detour is heard,
/// and there when the path dies.
const COPY_RATE: u32 = 8 << 10;
/// Bytes a second of a session over a path, and at once: half of what a relay passes for a label by default, so that
/// probes in the same flow are not lost by it.
const PATH_RATE: u32 = 512 << 10;
const PATH_BURST: u32 = 96 << 10;
/// Bytes a second that go directly to a far end while a detour stands; probes take a tenth of it.
const DIRECT_RATE: u32 = 16 << 10;
/// Detours that one neighbour may begin by what proves nothing.
const UNPROVED_MAX: usize = 4;
/// Detours at a time.
pub(super) const DETOURS_MAX: usize = 64;
/// How long the direct way is asked alone: a round trip and what a beat adds.
const QUIET: Duration = Duration::from_millis(500);
/// How long it is asked alone again and again, while it answers: chosen so that, with a last [`QUIET`], it is less
/// than the 3 s after which a detour by which nothing comes takes another relay.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// The shortest time between two such: chosen so that it carries [`DETOUR_RATE`] bytes in between.
const NOISY: Duration = Duration::from_secs(1);
/// The same for a probe that may find nobody: what leaves with it goes directly alone, and what comes later waits for
/// nothing.
const ALONE_FOR: Duration = Duration::from_millis(50);
/// One of so many probes asks the direct way alone.
const ALONE: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: LinkId = LinkId(1);

    fn begun(detours: &mut Detours, far: u16, relay: u16) -> bool {
        let way = (LinkId(far), LinkId(relay));
        let may = detours.may_begin(Instant::ZERO, way);
        if may {
            let address = SocketAddr::from(([192, 0, 2, 1], far));
            detours.begin(Instant::ZERO, way.0, (way.1, address));
        }
        may
    }

    /// Of `offered` bytes in each of 1,000 ms, those that may pass.
    fn passed(mut may: impl FnMut(Instant, u32) -> bool, offered: u32) -> u32 {
        let passes = |ms: &u64| may(Instant::from_millis(*ms), offered);
        let times = (0..1_000).filter(passes).count();
        u32::try_from(times).unwrap() * offered
    }

    #[test]
    fn mesh_a1_what_goes_and_comes_by_a_detour_is_rationed_and_what_goes_directly_meanwhile() {
        let mut detours = Detours::default();
        assert!(begun(&mut detours, 1, 2));
        let detour = detours.list.get_mut(&FAR).unwrap();
        let direct = passed(|now, len| detour.may_go_directly(now, len), 1_000);
        assert!((31_000..=32_768).contains(&direct), "{direct}");
        let going = passed(|now, len| detour.may_go(now, len), 1_000);
        assert!((128_000..=131_072).contains(&going), "{going}");
        let over_path = passed(
            |now, len| detour.ways(now, len, Some(1)).path.is_some(),
            1_000,
        );
        assert!((600_000..=622_592).contains(&over_path), "{over_path}");
        let copies = |now, len| detour.ways(now + QUIET, len, Some(1)).relay;
        let copied = passed(copies, 1_000);
        assert!(copied <= 24_576, "{copied}");
        let coming = passed(|now, len| detour.may_come(now, len), 1_000);
        assert!((193_000..=196_608).contains(&coming), "{coming}");
    }

    #[test]
    fn mesh_a1_a_detour_is_used_for_a_second_of_each_three_and_a_half_whatever_is_heard() {
        let mut detours = Detours::default();
        assert!(begun(&mut detours, 1, 2));
        let detour = detours.list.get_mut(&FAR).unwrap();
        let carries = (10_000..45_000).filter(|ms| {
            let now = Instant::from_millis(*ms);
            detour.pause_relay(now, QUIET);
            now >= detour.quiet_until
        });
        let carries = carries.count();
        assert!((9_000..=10_020).contains(&carries), "{carries}");
    }

    #[test]
    fn mesh_a1_one_neighbour_begins_four_detours_by_what_it_makes_up_and_all_together_half() {
        let mut detours = Detours::default();
        let begun_by = |detours: &mut Detours, relay: u16| {
            let far = |number| relay * 100 + number;
            let begun = (0..10).filter(|number| begun(detours, far(*number), relay));
            begun.count()
        };
        let counts: Vec<usize> = (1..12).map(|relay| begun_by(&mut detours, relay)).collect();
        assert_eq!(counts, [4, 4, 4, 4, 4, 4, 4, 4, 0, 0, 0]);
        assert_eq!(detours.list.len(), DETOURS_MAX / 2);
    }
}
