//! Link slots that inbound peers cannot take.

use netsim::provider::SimProvider;
use relay_mesh::link_state::Roles;
use relay_mesh::route_request::RouteReply;
use udp_proto::SessionId;
use wire::{NodeId, Seed};

use crate::harness::{ENTRY, EXIT, RELAY, identity, mesh_address, ms, shape};
use crate::limits::record_of;
use crate::member::{Harness, Member, bind, join_at, take};

/// A member with one session at the entry and one at the relay.
struct Guest {
    member: Member,
    own: NodeId,
    at_entry: SessionId,
    at_relay: SessionId,
}

/// Makes the peer hold a label of the entry that leads on to the relay. Unused labels end after 30
/// s.
fn hold(harness: &mut Harness, guest: &Guest) {
    let (entry, relay) = (harness.mesh.ids[ENTRY], harness.mesh.ids[RELAY]);
    harness.member = guest.member;
    harness.speak_over(guest.at_relay);
    let theirs = take(harness, entry, 1);
    harness.speak_over(guest.at_entry);
    let own = take(harness, guest.own, 1);
    let bound = bind(harness, relay, &own, &theirs);
    assert_eq!(bound, RouteReply::Done(Vec::new()));
}

fn has_link(harness: &Harness, of: NodeId) -> bool {
    let mut links = harness.mesh.process(ENTRY).node.links();
    links.any(|link| link.node == of)
}

/// While the exit is away, inbound peers with labels that lead on take all slots of an entry.
#[test]
fn mesh_a1_inbound_peers_that_carry_flows_block_no_needed_peer() {
    let shape = shape(|index, config, _| {
        if index == ENTRY {
            config.profile.roles = Roles::ENTRY | Roles::RELAY;
            config.links_max = 8;
        }
    });
    let mut harness = Harness::at(31, &shape, ENTRY);
    harness.mesh.kill(EXIT);
    harness.mesh.run(20_000);
    let mut provider = SimProvider::new(Seed::from_number(32));
    let mut guests = Vec::new();
    for number in 98..110 {
        if number > 98 {
            harness.member = join_at(&mut harness.mesh, number, ENTRY);
            harness.own = identity(harness.mesh.seed, number).node_id();
            harness.mesh.run(500);
        }
        let at_entry = harness.session();
        if !has_link(&harness, harness.own) {
            continue;
        }
        harness.turn_to(RELAY);
        let guest = Guest {
            member: harness.member,
            own: harness.own,
            at_entry,
            at_relay: harness.session(),
        };
        // From now on others dial it.
        harness.speak_over(at_entry);
        let own = identity(harness.mesh.seed, number);
        harness.transmit(&record_of(&mut provider, &own, vec![mesh_address(number)]));
        hold(&mut harness, &guest);
        guests.push(guest);
    }
    let links = |harness: &Harness| harness.mesh.process(ENTRY).node.links().count();
    assert_eq!(links(&harness), 8, "{} guests", guests.len());

    harness.mesh.restart(EXIT, 1);
    for _ in 0..5 {
        harness.mesh.run(5_000);
        for guest in &guests {
            if has_link(&harness, guest.own) {
                hold(&mut harness, guest);
            }
        }
    }
    assert!(has_link(&harness, harness.mesh.ids[EXIT]));
    assert!(links(&harness) <= 8);
    let stays = guests.iter().filter(|guest| has_link(&harness, guest.own));
    assert!(stays.count() + 2 >= guests.len(), "others keep theirs");
    let now = harness.mesh.now();
    let gap = harness
        .mesh
        .player()
        .gap(now.saturating_sub(ms(3_000)), now);
    assert!(gap < ms(100), "{gap:?}");
}
