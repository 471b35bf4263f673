//! Labels of a node that a signed document excludes from every game.

use std::collections::BTreeSet;

use relay_mesh::Config;
use relay_mesh::route_request::{Refused, RouteReply, RouteRequest};
use wire::NodeId;

use crate::harness::{Mesh, RELAY, game, ms, shape};
use crate::member::{self, Harness};
use crate::signed::{ALL, echo, put_games, rule, signed};

fn sharded(index: usize, config: &mut Config, ids: &[NodeId]) {
    signed(index, config, ids);
    config.shards = 4;
}

fn labels(mesh: &Mesh, index: usize) -> u32 {
    mesh.process(index).node.labels()
}

/// In all shards, and bound labels too, but no other node's labels. If the node is admitted again,
/// it gets new ones.
#[test]
fn pg11_relays_revoke_labels_of_nodes_that_may_not_send() {
    let mut harness = Harness::with(8, &shape(sharded));
    let (relay, next, own) = (
        harness.mesh.ids[RELAY],
        harness.mesh.ids[RELAY + 1],
        harness.own,
    );
    put_games(&mut harness.mesh, 1, &[echo()]);
    harness.mesh.run(5_000);
    assert_eq!(harness.mesh.route(), Some(harness.mesh.path(&[RELAY])));
    let before = [RELAY, RELAY + 1].map(|index| labels(&harness.mesh, index));
    let reserve = |previous, count| RouteRequest::ReserveTransit { previous, count };
    let at_relay = harness.session();
    harness.turn_to(RELAY + 1);
    let RouteReply::Done(theirs) = harness.ask(&reserve(relay, 1)) else {
        panic!("it may pass");
    };
    let at_next = harness.speak_over(at_relay);
    let RouteReply::Done(granted) = harness.ask(&reserve(own, 5)) else {
        panic!("it may pass");
    };
    let shards: BTreeSet<_> = granted.iter().map(|it| it.label.shard()).collect();
    assert_eq!(shards.len(), 4);
    let bound = member::bind(&mut harness, next, &granted[..1], &theirs);
    assert!(matches!(bound, RouteReply::Done(_)), "{bound:?}");
    let held = [RELAY, RELAY + 1].map(|index| labels(&harness.mesh, index));
    assert_eq!(held, [before[0] + 5, before[1] + 1]);

    let bars = format!("{{\"type\":\"black\",\"nodes\":[\"{own}\"]}}");
    let at = harness.mesh.now();
    let barring = rule("echo", game().port(), &bars, &bars);
    put_games(&mut harness.mesh, 2, &[barring]);
    harness.mesh.run(1_000);
    let held = [RELAY, RELAY + 1].map(|index| labels(&harness.mesh, index));
    assert_eq!(held, before);
    let policy = RouteReply::Refused(Refused::Policy);
    assert_eq!(harness.ask(&reserve(own, 1)), policy);
    harness.speak_over(at_next);
    assert_eq!(harness.ask(&reserve(relay, 1)), policy);
    harness.speak_over(at_relay);

    let admitting = rule("echo", game().port(), ALL, &bars);
    put_games(&mut harness.mesh, 3, &[admitting]);
    harness.mesh.run(1_000);
    assert!(matches!(harness.ask(&reserve(own, 1)), RouteReply::Done(_)));
    assert!(harness.mesh.player().gap(at, harness.mesh.now()) < ms(100));
}
