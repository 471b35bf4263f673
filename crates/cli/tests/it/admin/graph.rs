//! The operator's view of the mesh.

use std::fs;
use std::net::TcpListener;
use std::time::Duration;

use daemon::relay::sandbox::NodeProcess;
use daemon::relay::{FileProbe, ProcessEvent};
use serde_json::Value;

use super::{ENTRY, EXIT, RELAY, Testbed, assert_refused, in_force, text, wait};
use crate::mesh_node::PATIENCE;
use crate::net::until;

/// Waits until all links are measured; returns the graph.
fn measured(testbed: &Testbed) -> (Vec<NodeProcess>, Value) {
    let nodes = testbed.start_all();
    text(&testbed.put(RELAY, &testbed.document(1, &[testbed.echo()]), "admin"));
    for node in &nodes {
        in_force(node, 1);
    }
    let graph = (0..100)
        .map(|_| {
            wait(Duration::from_millis(100));
            let said = text(&testbed.admin(ENTRY, "graph", &["--format", "json"]));
            serde_json::from_str::<Value>(&said).unwrap()
        })
        .find(|graph| graph["links"].as_array().unwrap().len() == 3)
        .expect("each with each");
    (nodes, graph)
}

#[test]
fn pg15_mesh_and_routes_are_shown_as_json_text_and_mermaid() {
    let testbed = Testbed::new();
    let (_nodes, graph) = measured(&testbed);
    assert_eq!(graph["schema"], 1);
    let nodes_shown = graph["nodes"].as_array().unwrap();
    let mut names: Vec<&str> = nodes_shown
        .iter()
        .map(|node| node["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["lisbon", "oslo", "paris"]);
    let of = |name: &str| {
        let node = nodes_shown.iter().find(|node| node["name"] == name);
        node.unwrap()
    };
    assert_eq!(of("paris")["roles"], serde_json::json!(["relay"]));
    let said = text(&testbed.admin(EXIT, "graph", &[]));
    assert!(said.contains("paris") && said.contains(" ms, "), "{said}");
    let said = text(&testbed.admin(EXIT, "graph", &["--format", "mermaid"]));
    assert!(said.starts_with("graph LR\n"), "{said}");
    assert_eq!(said.matches(" ---|").count(), 3, "{said}");
    assert_eq!(said.matches(" ms| n").count(), 3, "{said}");

    // Between nodes, by name and by id, and to a game.
    let id = of("oslo")["node"].as_str().unwrap();
    for to in ["oslo", id, "echo"] {
        let said = text(&testbed.admin(RELAY, "route", &["lisbon", to, "--format", "json"]));
        let route: Value = serde_json::from_str(&said).unwrap();
        let hops = route["hops"].as_array().unwrap();
        assert_eq!(hops[0]["name"], "lisbon", "{said}");
        assert_eq!(hops[hops.len() - 1]["name"], "oslo", "{said}");
        assert!(route["cost_ms"].as_f64().unwrap() < 100.0, "{said}");
    }
    let said = text(&testbed.admin(RELAY, "route", &["lisbon", "oslo"]));
    assert!(said.starts_with("cheapest  lisbon > "), "{said}");
    let said = text(&testbed.admin(RELAY, "route", &["lisbon", "oslo", "--format", "mermaid"]));
    assert!(said.contains(" ===|"), "{said}");
    assert_refused(
        &testbed.admin(RELAY, "route", &["lisbon", "chess"]),
        1,
        "no node or game is named \"chess\"",
    );
    assert_refused(
        &testbed.admin(RELAY, "route", &["rome", "oslo"]),
        1,
        "no node is named \"rome\"",
    );
    let odd = testbed.admin(RELAY, "route", &["lisbon", "a b"]);
    assert_refused(&odd, 1, "no node or game is named \"a b\"");
}

#[test]
fn pg15_routes_in_use_are_shown_with_the_cheapest_path() {
    let testbed = Testbed::new();
    let (_nodes, graph) = measured(&testbed);
    let mut shown = graph["nodes"].as_array().unwrap().iter();
    let id = &shown.find(|node| node["name"] == "oslo").unwrap()["node"];
    let said = text(&testbed.admin(RELAY, "route", &["lisbon", "oslo"]));
    let in_use = said.lines().nth(1).unwrap();
    assert_eq!(in_use, "in use    ask lisbon, which alone knows");
    // The entry shows the routes in use next to the cheapest one.
    let said = text(&testbed.admin(ENTRY, "route", &["lisbon", "echo"]));
    assert!(said.contains("in use    no flow\n"), "{said}");
    let player = testbed.player();
    assert!(testbed.play(&player, b"hello"));
    for to in ["echo", "oslo"] {
        let said = text(&testbed.admin(ENTRY, "route", &["lisbon", to]));
        assert!(said.starts_with("cheapest  lisbon > "), "{said}");
        let in_use = said.lines().nth(1).unwrap();
        assert!(in_use.starts_with("in use    lisbon > "), "{said}");
        assert!(
            in_use.contains("oslo: ") && in_use.contains("flows 1"),
            "{said}"
        );
        let said = text(&testbed.admin(ENTRY, "route", &["lisbon", to, "--format", "json"]));
        let route: Value = serde_json::from_str(&said).unwrap();
        let used = &route["in_use"][0];
        assert_eq!((&used["far_end"], &used["flows"]), (id, &1.into()));
        let hops = used["hops"].as_array().unwrap();
        assert_eq!(hops[hops.len() - 1]["name"], "oslo", "{said}");
    }
}

#[test]
fn pgx12_counters_are_exported_in_prometheus_format() {
    let testbed = Testbed::new();
    let (_nodes, _) = measured(&testbed);
    let page = text(&testbed.admin(RELAY, "metrics", &[]));
    for line in [
        "tickwire_mesh_links 2",
        "tickwire_mesh_config_version 1",
        "tickwire_mesh_draining 0",
        "tickwire_mesh_strays_handed_total 0",
        "tickwire_mesh_shard_datagrams_in_total{shard=\"0\"}",
        "tickwire_mesh_labels",
        "tickwire_mesh_config_accepted_total 1",
        "tickwire_mesh_frames_replayed_total 0",
        "tickwire_mesh_requests_refused_policy_total 0",
        "tickwire_mesh_records_forged_total 0",
        "tickwire_mesh_records_deltas_forged_total 0",
        "tickwire_mesh_gossip_over_rate_total 0",
    ] {
        let mut lines = page.lines();
        let is_there = lines.any(|of| of == line || of.starts_with(&format!("{line} ")));
        assert!(is_there, "{line}\n{page}");
    }
    assert_eq!(
        page.matches("tickwire_mesh_link_delay_seconds{node=")
            .count(),
        2
    );
    let prefix = "tickwire_mesh_records_accepted_total ";
    let accepted = page.lines().find_map(|line| line.strip_prefix(prefix));
    let accepted: u64 = accepted.unwrap().parse().unwrap();
    assert!(accepted >= 4, "a node and a link record of both others");
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').unwrap();
        value.parse::<f64>().expect(line);
    }
}

#[test]
fn pg5_pg7_server_costs_and_unreachable_servers_are_shown() {
    let mut testbed = Testbed::new();
    let listener = TcpListener::bind((testbed.sandbox.host(9), 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let probe = ("echo".to_owned(), FileProbe::Connect { port });
    let exit = testbed.sandbox.config_mut(EXIT).unwrap();
    exit.probes.extend([probe]);
    let (mut nodes, _) = measured(&testbed);
    for shown_by in [ENTRY, EXIT] {
        let game = until("the edge is known", || {
            let said = text(&testbed.admin(shown_by, "graph", &["--format", "json"]));
            let graph: Value = serde_json::from_str(&said).unwrap();
            graph["games"].as_array().unwrap().first().cloned()
        });
        assert_eq!(
            (&game["game"], &game["protocol"]),
            (&"echo".into(), &"udp".into())
        );
        assert!(game["cost_ms"].as_f64().unwrap() < 1_000.0, "{game}");
        let said = text(&testbed.admin(shown_by, "graph", &[]));
        assert!(said.contains("oslo > echo (udp): "), "{said}");
        let page = text(&testbed.admin(shown_by, "metrics", &[]));
        let of = format!("{{game=\"echo\",protocol=\"udp\",exit={}}}", game["exit"]);
        assert!(
            page.contains(&format!("tickwire_mesh_game_edge_reached{of} 1\n")),
            "{page}"
        );
        assert!(
            page.contains(&format!("tickwire_mesh_game_edge_delay_seconds{of} 0.")),
            "{page}"
        );
    }
    nodes[EXIT].kill().unwrap();
    let refused = until("the exit is known to be gone", || {
        let said = testbed.admin(ENTRY, "route", &["lisbon", "echo"]);
        (!said.status.success()).then_some(said)
    });
    assert_refused(&refused, 1, "there is no path to \"echo\"");
}

/// A killed relay restarts without bootstrap nodes. Its neighbours learn by a stateless reset that
/// their sessions are lost; the reset secret is stored next to its key.
#[test]
fn mesh_a9_neighbours_of_a_killed_node_get_a_stateless_reset() {
    let mut testbed = Testbed::new();
    testbed.sandbox.config_mut(RELAY).unwrap().bootstrap.clear();
    let mut nodes = testbed.start_all();
    nodes[RELAY].kill().unwrap();
    let names = fs::read_dir(testbed.sandbox.directory()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let kept = names.filter(|name| name.starts_with("paris.pem.reset-"));
    assert_eq!(kept.count(), 1);
    nodes[RELAY] = testbed.start(RELAY);
    for other in [ENTRY, EXIT] {
        let paris = testbed.sandbox.id(RELAY);
        nodes[other]
            .wait_for(PATIENCE, |news| {
                let is_up =
                    matches!(news, ProcessEvent::LinkUp { node, .. } if Some(node) == paris);
                is_up.then_some(())
            })
            .expect("they meet again");
        let page = text(&testbed.admin(other, "metrics", &[]));
        assert!(
            page.contains("tickwire_endpoint_resets_taken_total 1"),
            "{page}"
        );
    }
}
