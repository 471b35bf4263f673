//! What nodes do not do yet, as the README says it.

use netsim::{Chance, Loss};
use relay_mesh::FlowEnd;
use wire::Seed;

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, link, ms};

#[test]
fn flows_over_relays_outlive_a_dead_direct_path_by_the_session_s_ten_seconds() {
    let mut mesh = Mesh::new(Seed::from_number(1), &Shape::default());
    mesh.run(START + 2_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    let (entry, exit) = (mesh.nodes[ENTRY], mesh.nodes[EXIT]);
    let dead = link(80).with_loss(Loss::Bernoulli(Chance::percent(100)));
    mesh.world.set_links(entry, exit, dead);
    let cut = mesh.now();
    mesh.run(8_000);
    assert_eq!(mesh.process(ENTRY).closed_flows(), [], "it lives on");
    assert!(mesh.player().gap(cut, mesh.now()) < ms(50), "without a gap");
    mesh.run(4_000);
    assert_eq!(
        mesh.process(ENTRY).closed_flows(),
        [FlowEnd::SessionLost],
        "and ends with the session, with a reason"
    );
}
