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
fn hold(rig: &mut Harness, guest: &Guest) {
    let (entry, relay) = (rig.mesh.ids[ENTRY], rig.mesh.ids[RELAY]);
    rig.member = guest.member;
    rig.speak_over(guest.at_relay);
    let theirs = take(rig, entry, 1);
    rig.speak_over(guest.at_entry);
    let own = take(rig, guest.own, 1);
    let bound = bind(rig, relay, &own, &theirs);
    assert_eq!(bound, RouteReply::Done(Vec::new()));
}

fn has_link(rig: &Harness, of: NodeId) -> bool {
    let mut links = rig.mesh.process(ENTRY).node.links();
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
    let mut rig = Harness::at(31, &shape, ENTRY);
    rig.mesh.kill(EXIT);
    rig.mesh.run(20_000);
    let mut provider = SimProvider::new(Seed::from_number(32));
    let mut guests = Vec::new();
    for number in 98..110 {
        if number > 98 {
            rig.member = join_at(&mut rig.mesh, number, ENTRY);
            rig.own = identity(rig.mesh.seed, number).node_id();
            rig.mesh.run(500);
        }
        let at_entry = rig.session();
        if !has_link(&rig, rig.own) {
            continue;
        }
        rig.turn_to(RELAY);
        let guest = Guest {
            member: rig.member,
            own: rig.own,
            at_entry,
            at_relay: rig.session(),
        };
        // From now on others dial it.
        rig.speak_over(at_entry);
        let own = identity(rig.mesh.seed, number);
        rig.say(&record_of(&mut provider, &own, vec![mesh_address(number)]));
        hold(&mut rig, &guest);
        guests.push(guest);
    }
    let links = |rig: &Harness| rig.mesh.process(ENTRY).node.links().count();
    assert_eq!(links(&rig), 8, "{} guests", guests.len());

    rig.mesh.restart(EXIT, 1);
    for _ in 0..5 {
        rig.mesh.run(5_000);
        for guest in &guests {
            if has_link(&rig, guest.own) {
                hold(&mut rig, guest);
            }
        }
    }
    assert!(has_link(&rig, rig.mesh.ids[EXIT]));
    assert!(links(&rig) <= 8);
    let stays = guests.iter().filter(|guest| has_link(&rig, guest.own));
    assert!(stays.count() + 2 >= guests.len(), "others keep theirs");
    let now = rig.mesh.now();
    let gap = rig.mesh.player().gap(now.saturating_sub(ms(3_000)), now);
    assert!(gap < ms(100), "{gap:?}");
}
