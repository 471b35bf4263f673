use super::*;
use crate::hop::{HOPS_LEFT_MAX, LabelName, Phase, Piece};
use crate::hop_sealer::Binding;
use crate::link::{End, Link};
use crypto::{Exporter, Initial, Role, Secret32};
use netsim::provider::SimProvider;
use wire::Seed;

type Plane = DataPlane<<SimProvider as Provider>::Aead>;

/// An entry and an exit with one relay between them, and a stranger who is linked to the relay.
struct Rig {
    provider: SimProvider,
    entry: Plane,
    relay: Plane,
    exit: Plane,
    binding: Binding,
    /// The relay's label for frames of the entry.
    label: LabelName,
}

const ENTRY: LinkId = LinkId(0);
const RELAY: LinkId = LinkId(1);
const EXIT: LinkId = LinkId(2);
const STRANGER: LinkId = LinkId(3);
const LIMITS: LabelLimits = LabelLimits {
    labels_max: 1_000,
    per_owner_max: 1_000,
    rate: 100_000,
    burst: 100_000,
    owner_rate: 1_000_000,
};
const WHOLE: Phase = Phase {
    key: 0,
    piece: Piece::Whole,
};

fn address(link: LinkId) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], link.0))
}

fn exporter(provider: &SimProvider, number: u8) -> Exporter {
    let agreed = Initial::new(provider, None).agree(provider, &Secret32::new([number; 32]));
    agreed.traffic(provider, &[0; 32]).split(Role::Dialler).2
}

/// Joins two planes: `a` dialled, and knows `b` by the second name of the pair.
fn join(
    provider: &SimProvider,
    number: u8,
    (a, a_is): (&mut Plane, LinkId),
    (b, b_is): (&mut Plane, LinkId),
) {
    let exporter = exporter(provider, number);
    for (plane, end, peer) in [(a, End::Dialler, b_is), (b, End::Accepter, a_is)] {
        let link = Link::new(
            provider,
            &exporter,
            end,
            address(peer),
            u64::from(number) * 2,
        );
        plane.links.set(peer, Some(link));
    }
}

impl Rig {
    fn new() -> Self {
        let provider = SimProvider::new(Seed::from_number(1));
        let plane = || Plane::new(LIMITS, 1 << 20);
        let (mut entry, mut relay, mut exit, mut stranger) = (plane(), plane(), plane(), plane());
        join(&provider, 1, (&mut entry, ENTRY), (&mut relay, RELAY));
        join(&provider, 2, (&mut relay, RELAY), (&mut exit, EXIT));
        join(&provider, 3, (&mut stranger, STRANGER), (&mut relay, RELAY));
        let now = Instant::ZERO;
        let last = exit.labels.reserve(now, ENTRY, RELAY).unwrap();
        exit.labels.bind_terminal(last, 77);
        let label = relay.labels.reserve(now, ENTRY, ENTRY).unwrap();
        let sealer = &mut relay.links.get_mut(EXIT).unwrap().sealer;
        let transit = sealer.bind_transit(&provider, now, last).unwrap();
        assert!(relay.labels.bind_transit(label, EXIT, transit).is_none());
        let sealer = &mut entry.links.get_mut(RELAY).unwrap().sealer;
        let binding = sealer.bind_origin(&provider, now, label).unwrap();
        Self {
            provider,
            entry,
            relay,
            exit,
            binding,
            label,
        }
    }

    fn send(&mut self, at: u64, number: u64, len: usize) -> Vec<u8> {
        let packet = Packet {
            number,
            phase: WHOLE,
            hops_left: 3,
            body: &vec![9; len],
        };
        let now = Instant::from_millis(at);
        let via = (RELAY, &mut self.binding);
        self.entry.send(&self.provider, now, via, packet);
        let mut frame = Vec::new();
        assert_eq!(
            self.entry.outbox.pop(&mut frame),
            Some((Leg::mesh(address(RELAY)), None))
        );
        frame
    }

    /// What the relay makes of a frame.
    fn relay(&mut self, at: u64, from: LinkId, mut frame: Vec<u8>) -> Option<Vec<u8>> {
        let now = Instant::from_millis(at);
        let arrived = self
            .relay
            .handle_frame(&self.provider, now, (address(from), &mut frame));
        assert!(arrived.is_none());
        let mut out = Vec::new();
        self.relay.outbox.pop(&mut out).map(|leg| {
            assert_eq!(leg, (Leg::mesh(address(EXIT)), None));
            out
        })
    }
}

#[test]
fn a_frame_passes_a_relay_and_ends_at_its_flow() {
    let mut rig = Rig::new();
    let frame = rig.send(0, 5, 100);
    assert_eq!(frame.len(), 132);
    let mut onward = rig.relay(0, ENTRY, frame).unwrap();
    let arrived = rig
        .exit
        .handle_frame(&rig.provider, Instant::ZERO, (address(RELAY), &mut onward))
        .unwrap();
    assert_eq!(arrived.flow, 77);
    assert_eq!(arrived.header.number, 5);
    assert_eq!(arrived.body, [9; 100]);
    assert_eq!(rig.relay.stats.sealed, 1);
}

/// A frame, where and when it comes from, and what counts it.
type Case = (Vec<u8>, LinkId, u64, fn(&FrameStats) -> u64);

#[test]
fn mesh_a1_each_kind_of_hostile_frame_has_its_counter_and_no_answer() {
    let mut rig = Rig::new();
    let good = rig.send(0, 5, 100);
    assert!(rig.relay(0, ENTRY, good.clone()).is_some());
    let fresh = rig.send(0, 6, 100);
    let edited = |at: usize, byte: u8| {
        let mut frame = fresh.clone();
        frame[at] = byte;
        frame
    };
    let mut oversize = fresh.clone();
    oversize.resize(1_281, 0);
    let cases: Vec<Case> = vec![
        (good, ENTRY, 0, |stats| stats.replayed),
        (fresh[..47].to_vec(), ENTRY, 0, |stats| stats.truncated),
        (oversize, ENTRY, 0, |stats| stats.oversize),
        (edited(0, 0x83), ENTRY, 0, |stats| stats.unknown_kind),
        (edited(0, 0x80), ENTRY, 0, |stats| stats.tag_only),
        (edited(1, 0x80), ENTRY, 0, |stats| stats.malformed),
        (edited(2, 1), ENTRY, 0, |stats| stats.unknown_label),
        (edited(7, 9), ENTRY, 0, |stats| stats.unknown_label),
        (edited(20, !fresh[20]), ENTRY, 0, |stats| stats.wrong_tag),
        (edited(131, !fresh[131]), ENTRY, 0, |stats| stats.wrong_tag),
        (fresh.clone(), STRANGER, 0, |stats| stats.wrong_link),
        (fresh.clone(), ENTRY, 30_000, |stats| stats.expired),
    ];
    for (index, (frame, from, at, counter)) in cases.into_iter().enumerate() {
        let before = counter(&rig.relay.stats);
        assert_eq!(rig.relay(at, from, frame), None, "case {index}");
        assert_eq!(counter(&rig.relay.stats), before + 1, "case {index}");
    }
    assert!(rig.relay(0, ENTRY, fresh).is_some(), "nothing was spent");
    assert_eq!(rig.relay.stats.sealed, 2);
}

#[test]
fn mesh_a1_a_neighbour_cannot_use_the_label_of_another() {
    let mut rig = Rig::new();
    // It knows label and generation, and claims the entry's address; but its key is another.
    let frame = rig.send(0, 1, 50);
    let mut stranger = Plane::new(LIMITS, 1 << 20);
    join(
        &rig.provider,
        3,
        (&mut stranger, STRANGER),
        (&mut Plane::new(LIMITS, 1 << 20), RELAY),
    );
    let link = stranger.links.get_mut(RELAY).unwrap();
    let mut binding = link
        .sealer
        .bind_origin(&rig.provider, Instant::ZERO, rig.label)
        .unwrap();
    let mut forged = Vec::new();
    let packet = Packet {
        number: 1,
        phase: WHOLE,
        hops_left: 3,
        body: &[9; 50],
    };
    link.sealer
        .seal(
            &rig.provider,
            Instant::ZERO,
            (&mut binding, packet),
            &mut forged,
        )
        .unwrap();
    assert_eq!(rig.relay(0, ENTRY, forged), None);
    assert_eq!(rig.relay.stats.wrong_tag, 1);
    assert!(rig.relay(0, ENTRY, frame).is_some());
}

#[test]
fn mesh_m5_frames_that_overtake_each_other_all_pass() {
    let mut rig = Rig::new();
    let mut frames: Vec<Vec<u8>> = (0..500).map(|number| rig.send(0, number, 20)).collect();
    let mut generator = Seed::from_number(3).generator(0);
    for last in (1..frames.len()).rev() {
        let other = usize::try_from(generator.below(u64::try_from(last).unwrap() + 1)).unwrap();
        frames.swap(last, other);
    }
    for frame in frames {
        assert!(rig.relay(0, ENTRY, frame).is_some());
    }
}

#[test]
fn a_label_is_held_to_its_rate() {
    let mut rig = Rig::new();
    let passed = (0..1_000)
        .filter(|&number| {
            let frame = rig.send(0, number, 968);
            rig.relay(0, ENTRY, frame).is_some()
        })
        .count();
    assert_eq!(passed, 100);
    assert_eq!(rig.relay.stats.over_rate, 900);
}

#[test]
fn labels_die_with_the_link_before_and_the_link_behind() {
    for link in [ENTRY, EXIT] {
        let mut rig = Rig::new();
        let frame = rig.send(0, 0, 20);
        assert_eq!(rig.relay.drop_link(Instant::ZERO, link), 1);
        assert_eq!(rig.relay(0, ENTRY, frame), None);
        assert_eq!(rig.relay.stats.unknown_label, 1);
    }
    let mut rig = Rig::new();
    assert_eq!(rig.relay.drop_link(Instant::ZERO, STRANGER), 0);
}

/// Two relays that pass each other's frames along a chain of `count` labels each, all of one owner.
/// Returns the first label of the chain, at the first relay.
fn chain(
    provider: &SimProvider,
    (a, b): (&mut Plane, &mut Plane),
    count: usize,
) -> Vec<(LabelName, LabelName)> {
    let now = Instant::ZERO;
    let pairs: Vec<(LabelName, LabelName)> = (0..count)
        .map(|step| {
            let before = if step == 0 { STRANGER } else { EXIT };
            let first = a.labels.reserve(now, STRANGER, before).unwrap();
            (first, b.labels.reserve(now, STRANGER, RELAY).unwrap())
        })
        .collect();
    let mut behind = pairs.iter().skip(1);
    for (first, second) in &pairs {
        let sealer = &mut a.links.get_mut(EXIT).unwrap().sealer;
        let next = sealer.bind_transit(provider, now, *second).unwrap();
        assert!(a.labels.bind_transit(*first, EXIT, next).is_none());
        if let Some((further, _)) = behind.next() {
            let sealer = &mut b.links.get_mut(RELAY).unwrap().sealer;
            let next = sealer.bind_transit(provider, now, *further).unwrap();
            assert!(b.labels.bind_transit(*second, RELAY, next).is_none());
        }
    }
    pairs
}

#[test]
fn mesh_a1_a_looped_route_passes_a_frame_no_further_than_a_route_can_be() {
    let provider = SimProvider::new(Seed::from_number(1));
    let plane = || Plane::new(LIMITS, 1 << 20);
    let (mut a, mut b, mut member) = (plane(), plane(), plane());
    join(&provider, 1, (&mut a, RELAY), (&mut b, EXIT));
    join(&provider, 2, (&mut member, STRANGER), (&mut a, RELAY));
    let labels = chain(&provider, (&mut a, &mut b), 400);
    let now = Instant::ZERO;
    let link = member.links.get_mut(RELAY).unwrap();
    let mut binding = link
        .sealer
        .bind_origin(&provider, now, labels[0].0)
        .unwrap();
    let packet = Packet {
        number: 1,
        phase: WHOLE,
        hops_left: HOPS_LEFT_MAX,
        body: &[9; 64],
    };
    member.send(&provider, now, (RELAY, &mut binding), packet);
    let (mut frame, mut passed) = (Vec::new(), 0);
    member.outbox.pop(&mut frame).unwrap();
    let (mut at_a, mut from) = (true, STRANGER);
    loop {
        let relay = if at_a { &mut a } else { &mut b };
        let arrived = relay.handle_frame(&provider, now, (address(from), &mut frame));
        assert!(arrived.is_none());
        frame.clear();
        if relay.outbox.pop(&mut frame).is_none() {
            assert_eq!(relay.stats.hops_spent, 1);
            break;
        }
        passed += 1;
        from = if at_a { RELAY } else { EXIT };
        at_a = !at_a;
    }
    assert_eq!(passed, 3, "of 800 labels");
}

#[test]
fn mesh_a1_all_labels_of_one_owner_share_a_rate() {
    let mut rig = Rig::new();
    let now = Instant::ZERO;
    // Each label may pass 100,000 bytes at once, and all of the owner's 250,000.
    let bindings: Vec<Binding> = (0..10)
        .map(|_| {
            let last = rig.exit.labels.reserve(now, ENTRY, RELAY).unwrap();
            let label = rig.relay.labels.reserve(now, ENTRY, ENTRY).unwrap();
            let sealer = &mut rig.relay.links.get_mut(EXIT).unwrap().sealer;
            let transit = sealer.bind_transit(&rig.provider, now, last).unwrap();
            let left = rig.relay.labels.bind_transit(label, EXIT, transit);
            assert!(left.is_none());
            let sealer = &mut rig.entry.links.get_mut(RELAY).unwrap().sealer;
            sealer.bind_origin(&rig.provider, now, label).unwrap()
        })
        .collect();
    let mut passed = 0;
    for binding in bindings {
        rig.binding = binding;
        for number in 0..100 {
            let frame = rig.send(0, number, 968);
            passed += u32::from(rig.relay(0, ENTRY, frame).is_some());
        }
    }
    assert_eq!(passed, 250);
    assert_eq!(rig.relay.stats.over_owner_rate, 750);
}
