//! Limits on how far and how fast frames are forwarded.

use super::*;
use crate::hop::HOPS_LEFT_MAX;

#[test]
fn a_label_is_held_to_its_rate() {
    for kind in KINDS {
        let mut harness = Harness::new(kind);
        let passed = (0..1_000)
            .filter(|&number| {
                let frame = harness.send(0, number, body(kind));
                harness.relay(0, ENTRY, frame).is_some()
            })
            .count();
        assert_eq!(passed, 100);
        assert_eq!(harness.relay.stats.over_rate, 900);
    }
}

/// Two relays that forward each other's frames along a chain of `count` labels each, all with one
/// owner. Returns the first label of the chain, at the first relay.
fn chain(
    provider: &SimProvider,
    (a, b): (&mut Plane, &mut Plane),
    count: usize,
) -> Vec<(NextLabel, NextLabel)> {
    let now = Instant::ZERO;
    let pairs: Vec<(NextLabel, NextLabel)> = (0..count)
        .map(|step| {
            let before = if step == 0 { STRANGER } else { EXIT };
            let first = reserve(provider, a, (STRANGER, before));
            (first, reserve(provider, b, (STRANGER, RELAY)))
        })
        .collect();
    let mut behind = pairs.iter().skip(1);
    for (first, second) in &pairs {
        let sealer = sealer_to(&mut a.links, provider, EXIT);
        let next = sealer.bind_transit(provider, now, second.clone()).unwrap();
        assert!(a.labels.bind_transit(first.name, EXIT, next).is_none());
        if let Some((further, _)) = behind.next() {
            let sealer = sealer_to(&mut b.links, provider, RELAY);
            let next = sealer.bind_transit(provider, now, further.clone()).unwrap();
            assert!(b.labels.bind_transit(second.name, RELAY, next).is_none());
        }
    }
    pairs
}

#[test]
fn mesh_a1_pgx6_pgd_p6_a_looped_route_is_bounded_by_the_route_length() {
    for kind in KINDS {
        let provider = SimProvider::new(Seed::from_number(1));
        let plane = Plane::new;
        let (mut a, mut b, mut member) = (plane(), plane(), plane());
        join(&provider, (1, kind), (&mut a, RELAY), (&mut b, EXIT));
        join(
            &provider,
            (2, kind),
            (&mut member, STRANGER),
            (&mut a, RELAY),
        );
        let labels = chain(&provider, (&mut a, &mut b), 400);
        let now = Instant::ZERO;
        let sealer = sealer_to(&mut member.links, &provider, RELAY);
        let mut binding = sealer
            .bind_origin(&provider, now, labels[0].0.clone())
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
}

#[test]
fn mesh_a1_all_labels_of_one_owner_share_a_rate() {
    for kind in KINDS {
        let mut harness = Harness::new(kind);
        // Each label has a burst of 100,000 bytes, and its owner 250,000 in total.
        let bindings: Vec<Binding> = (0..10).map(|_| harness.another_label()).collect();
        let mut passed = 0;
        for binding in bindings {
            harness.binding = binding;
            for number in 0..100 {
                let frame = harness.send(0, number, body(kind));
                passed += u32::from(harness.relay(0, ENTRY, frame).is_some());
            }
        }
        assert_eq!(passed, 250);
        assert_eq!(harness.relay.stats.over_owner_rate, 750);
    }
}

/// The length of a body that makes a frame of 1,000 bytes.
const fn body(kind: HopKind) -> usize {
    match kind {
        HopKind::Sealed => 968,
        HopKind::TagOnly => 976,
    }
}
