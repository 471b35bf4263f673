use std::collections::BTreeMap;

use crypto::{Identity, Provider};
use relay_mesh::cost::{Cost, LossCode};
use relay_mesh::link_state::{LinkRecord, Message, NodeRecord, Request, Urgency};
use relay_mesh::measure::LinkReport;
use relay_mesh::routes::Route;
use wire::NodeId;

use crate::world::{NETWORK, World};

/// A full mesh, with the byzantine node last.
fn dense(count: usize) -> World {
    let mut world = World::new(9, count);
    for a in 0..count {
        for b in 0..a {
            world.link(a, b, 40);
        }
    }
    world
}

/// The byzantine node claims links of 1 ms to all nodes, and forges records in which other nodes
/// report all their links as down.
#[test]
fn mesh_g3_one_lying_node_loses_no_route_and_removes_no_node() {
    let count: usize = 7;
    let byzantine = count - 1;
    let mut world = dense(count);
    world.run(2_000);
    let before: Vec<Option<_>> = pairs(&world, byzantine);

    let claims: BTreeMap<NodeId, LinkReport> = world.nodes[byzantine]
        .links
        .keys()
        .map(|&id| {
            let report = LinkReport {
                delay: Cost::from_millis(1),
                loss: LossCode(0),
            };
            (id, report)
        })
        .collect();
    world.nodes[byzantine].links = claims;
    world.run(2_000);
    for victim in 0..byzantine {
        forge(&mut world, byzantine, victim);
    }
    world.run(5_000);

    assert_eq!(
        pairs(&world, byzantine),
        before,
        "no route bends, none is lost"
    );
    for node in &world.nodes[..byzantine] {
        assert_eq!(node.table().digest().entries().len(), count);
        let stats = node.table().stats();
        // A budget of 256 checks at 32 per forgery gives 8, plus 3 per second.
        assert!((8..40).contains(&stats.forged), "{stats:?}");
        assert!(stats.over_budget > 0, "{stats:?}");
    }
}

/// Sends forged records that report all links of `victim` as down, signed with another key.
fn forge(world: &mut World, byzantine: usize, victim: usize) {
    let origin = world.nodes[victim].id;
    let node = &mut world.nodes[byzantine];
    let request = Request::new([(origin.into(), 0)]);
    let answer = node.gossip.table().answer(&request).next();
    let Some(Message::NodeRecord(record)) = answer else {
        panic!("the liar knows its victim");
    };
    let hash = NodeRecord::hash(&node.provider, record);
    let identity = Identity::generate(&mut node.provider).unwrap();
    let key = node.provider.signing_key(&identity).unwrap();
    let neighbours = node.links.len();
    let forged: Vec<Vec<u8>> = (0..20)
        .map(|version| {
            let record = LinkRecord {
                origin,
                version: 1_000_000 + version,
                list: *hash.first_chunk().unwrap(),
                is_leaving: true,
                urgency: Urgency::News,
                follows: 0,
                reports: vec![LinkReport::DOWN; neighbours],
            };
            record
                .sign(&mut node.provider, &key, NETWORK, &hash)
                .unwrap()
        })
        .collect();
    for bytes in forged {
        for to in world.neighbours(byzantine) {
            world.transmit(byzantine, to, &Message::LinkRecord(&bytes));
        }
    }
}

/// Routes between all pairs of honest nodes.
fn pairs(world: &World, byzantine: usize) -> Vec<Option<Route>> {
    let honest = &world.nodes[..byzantine];
    honest
        .iter()
        .flat_map(|from| honest.iter().map(|to| from.route(to.id)))
        .collect()
}
