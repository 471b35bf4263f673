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
    let mut rig = Harness::with(8, &shape(sharded));
    let (relay, next, own) = (rig.mesh.ids[RELAY], rig.mesh.ids[RELAY + 1], rig.own);
    put_games(&mut rig.mesh, 1, &[echo()]);
    rig.mesh.run(5_000);
    assert_eq!(rig.mesh.route(), Some(rig.mesh.path(&[RELAY])));
    let before = [RELAY, RELAY + 1].map(|index| labels(&rig.mesh, index));
    let reserve = |previous, count| RouteRequest::ReserveTransit { previous, count };
    let at_relay = rig.session();
    rig.turn_to(RELAY + 1);
    let RouteReply::Done(theirs) = rig.ask(&reserve(relay, 1)) else {
        panic!("it may pass");
    };
    let at_next = rig.speak_over(at_relay);
    let RouteReply::Done(granted) = rig.ask(&reserve(own, 5)) else {
        panic!("it may pass");
    };
    let shards: BTreeSet<_> = granted.iter().map(|it| it.label.shard()).collect();
    assert_eq!(shards.len(), 4);
    let bound = member::bind(&mut rig, next, &granted[..1], &theirs);
    assert!(matches!(bound, RouteReply::Done(_)), "{bound:?}");
    let held = [RELAY, RELAY + 1].map(|index| labels(&rig.mesh, index));
    assert_eq!(held, [before[0] + 5, before[1] + 1]);

    let bars = format!("{{\"type\":\"black\",\"nodes\":[\"{own}\"]}}");
    let at = rig.mesh.now();
    let barring = rule("echo", game().port(), &bars, &bars);
    put_games(&mut rig.mesh, 2, &[barring]);
    rig.mesh.run(1_000);
    let held = [RELAY, RELAY + 1].map(|index| labels(&rig.mesh, index));
    assert_eq!(held, before);
    let policy = RouteReply::Refused(Refused::Policy);
    assert_eq!(rig.ask(&reserve(own, 1)), policy);
    rig.speak_over(at_next);
    assert_eq!(rig.ask(&reserve(relay, 1)), policy);
    rig.speak_over(at_relay);

    let admitting = rule("echo", game().port(), ALL, &bars);
    put_games(&mut rig.mesh, 3, &[admitting]);
    rig.mesh.run(1_000);
    assert!(matches!(rig.ask(&reserve(own, 1)), RouteReply::Done(_)));
    assert!(rig.mesh.player().gap(at, rig.mesh.now()) < ms(100));
}
