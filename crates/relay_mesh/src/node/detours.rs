//! Detours: far ends that are not reachable directly, and the relays that forward to them.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use udp_proto::SessionId;
use wire::{Instant, TokenBucket};

use super::peers::DETOUR_RATE;
use crate::link::LinkId;

/// All detours of a node, keyed by far end.
#[derive(Debug, Default)]
pub(super) struct Detours {
    /// At most [`DETOURS_MAX`].
    pub(super) list: BTreeMap<LinkId, Detour>,
    /// Far ends that are needed and were dialled without success, and since when. While a session
    /// is renewed, the time is in the future.
    pub(super) missing: BTreeMap<LinkId, Instant>,
    /// Exits that players of this node may be sent to, as of the last lookup.
    pub(super) exits: Vec<LinkId>,
    /// Whether `exits` is up to date.
    pub(super) knows_exits: bool,
    /// Sessions that began over a detour, so that the packet size of their direct path is unknown.
    pub(super) blind: BTreeMap<LinkId, SessionId>,
    /// The far end of the datagram that is being handled, if it arrived over its detour.
    pub(super) taking: Option<LinkId>,
}

/// One detour.
#[derive(Debug)]
pub(super) struct Detour {
    /// The relay that forwards.
    pub(super) relay: LinkId,
    /// Address of the far end, as reported.
    pub(super) address: SocketAddr,
    /// When a packet of the far end's session last arrived over it; at first, when it began.
    pub(super) heard: Instant,
    /// Whether such a packet has arrived.
    pub(super) is_proved: bool,
    /// Limits bytes sent directly meanwhile, since the address is unverified.
    direct: TokenBucket,
    /// Limits bytes sent over it to what the relay forwards.
    going: TokenBucket,
    /// Limits the part of them sent while a path also carries the session.
    copies: TokenBucket,
    /// Limits bytes sent over that path.
    over_path: TokenBucket,
    /// Limits bytes received over it: the same rate with twice the burst, since packets may have
    /// queued on the way.
    coming: TokenBucket,
    /// When the current or last pause of the relay began.
    quiet_since: Instant,
    /// Nothing is sent over the relay until then.
    pub(super) quiet_until: Instant,
    /// Probes sent since it began.
    probes: u32,
}

impl Detours {
    /// Returns whether the datagram being handled is from `far` and arrived over its detour.
    pub(super) fn is_taking(&self, far: LinkId) -> bool {
        self.taking == Some(far)
    }

    /// Returns the relay that forwards to a far end.
    pub(super) fn relay(&self, far: LinkId) -> Option<LinkId> {
        self.list.get(&far).map(|detour| detour.relay)
    }

    /// Restarts the silence timers after a stall of this node: packets waited for it meanwhile.
    pub(super) fn on_stall(&mut self, now: Instant) {
        for detour in self.list.values_mut() {
            detour.heard = now;
        }
    }

    /// Records the packet size check of a session. Returns whether it measured the direct path.
    pub(super) fn on_size(&mut self, far: LinkId, session: SessionId) -> bool {
        let is_direct = self.list.get(&far).is_none_or(|detour| !detour.is_proved);
        if !is_direct {
            self.blind.insert(far, session);
        }
        is_direct
    }

    /// Returns whether a detour leads to this node or over it, or is being set up.
    pub(super) fn names(&self, link: LinkId) -> bool {
        let mut standing = self.list.iter();
        standing.any(|(far, detour)| *far == link || detour.relay == link)
            || self.missing.contains_key(&link)
            || self.blind.contains_key(&link)
    }

    /// Pauses the relay because a packet arrived on the direct path, or because that path is probed
    /// alone. Otherwise the detour could arrive first and hide it.
    pub(super) fn pause_relay(&mut self, now: Instant, far: LinkId) {
        if let Some(detour) = self.list.get_mut(&far) {
            detour.pause_relay(now, QUIET);
        }
    }

    /// Returns whether the relay is paused, so that packets to `far` use only the direct path and
    /// may be lost.
    pub(super) fn is_quiet(&self, now: Instant, far: LinkId) -> bool {
        let detour = self.list.get(&far);
        detour.is_some_and(|detour| now < detour.quiet_until)
    }

    /// Counts a probe to a far end. Every fifth is sent only directly.
    pub(super) fn on_probe(&mut self, now: Instant, far: LinkId) {
        if let Some(detour) = self.list.get_mut(&far) {
            detour.probes = detour.probes.wrapping_add(1);
            if detour.probes.is_multiple_of(ALONE) {
                detour.pause_relay(now, ALONE_FOR);
            }
        }
    }

    /// Returns whether a detour may begin because a neighbour forwarded a packet. The neighbour can
    /// forge this, so at least half of the detours are reserved for far ends needed here, and each
    /// neighbour may start few of the others.
    pub(super) fn may_begin(&self, now: Instant, (far, relay): (LinkId, LinkId)) -> bool {
        let is_renewing = self.missing.get(&far).is_some_and(|since| now < *since);
        let made_up = self.list.values();
        let made_up = made_up.filter(|detour| detour.relay == relay && !detour.is_proved);
        !is_renewing && self.list.len() < DETOURS_MAX / 2 && made_up.count() < UNPROVED_MAX
    }

    /// Begins a detour over which nothing has arrived yet.
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

/// How a datagram of a session with a detour is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ways {
    /// Over this path.
    pub(super) path: Option<u8>,
    /// Over the relay.
    pub(super) relay: bool,
}

impl Detour {
    /// Returns whether `len` bytes may be sent directly, and charges them.
    pub(super) fn may_go_directly(&mut self, now: Instant, len: u32) -> bool {
        self.direct.take(now, len)
    }

    /// Returns how `len` bytes for the far end are sent, besides the direct path, and charges them.
    pub(super) fn ways(&mut self, now: Instant, len: u32, path: Option<u8>) -> Ways {
        let is_copy_due = path.is_none() || self.copies.take(now, len);
        let is_quiet = now < self.quiet_until;
        Ways {
            path: path.filter(|_| !is_quiet && self.over_path.take(now, len)),
            relay: is_copy_due && self.may_go(now, len),
        }
    }

    /// Returns whether `len` bytes may be sent over the relay, and charges them.
    pub(super) fn may_go(&mut self, now: Instant, len: u32) -> bool {
        now >= self.quiet_until && self.going.take(now, len)
    }

    /// Returns whether `len` bytes received over it may be handled, and charges them.
    pub(super) fn may_come(&mut self, now: Instant, len: u32) -> bool {
        self.coming.take(now, len)
    }

    /// Pauses the relay for `span`. Limited to 2.5 s of every 3.5 s, however often it is called.
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

/// Bytes per second over the relay while a path carries the session; the burst is twice that. This
/// keeps the detour verified and ready if the path fails.
const COPY_RATE: u32 = 8 << 10;
/// Bytes per second of a session over a path, and the burst: half of what a relay forwards for a
/// label by default, so that probes in the same flow are not dropped.
const PATH_RATE: u32 = 512 << 10;
const PATH_BURST: u32 = 96 << 10;
/// Bytes per second sent directly to a far end during a detour; probes take a tenth of it.
const DIRECT_RATE: u32 = 16 << 10;
/// Unproved detours that one neighbour may start.
const UNPROVED_MAX: usize = 4;
/// Maximum number of detours.
pub(super) const DETOURS_MAX: usize = 64;
/// How long the direct path is probed alone: a round trip and one tick.
const QUIET: Duration = Duration::from_millis(500);
/// Maximum duration of repeated pauses while the direct path answers. With a final [`QUIET`], it is
/// less than the 3 s of silence after which a detour switches to another relay.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// Minimum time between two pauses: enough to send [`DETOUR_RATE`] bytes.
const NOISY: Duration = Duration::from_secs(1);
/// Pause for a probe that may get no answer. Only what is sent with the probe uses the direct path
/// alone; later packets are not delayed.
const ALONE_FOR: Duration = Duration::from_millis(50);
/// One of this many probes is sent only directly.
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

    /// Returns how many bytes pass if `offered` bytes are tried in each of 1,000 ms.
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
