//! The mesh and routes as JSON, as text, and as a Mermaid graph.

use std::fmt::Write;

use relay_mesh::cost::Cost;
use relay_mesh::link_state::Roles;
use relay_mesh::measure::LinkReport;
use relay_mesh::routes::{Path, Route};
use relay_mesh::signed_config::Protocol;
use relay_mesh::{EdgeView, GameEdgeView, LinkView, MeshView, NodeView, RouteView};
use serde_json::{Value, json};
use servicer::Counters;
use tickwire::stats::Page;
use wire::NodeId;

use crate::relay::machine::{NodeClient, NodeMachine, Stats};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Format {
    #[default]
    Json,
    Text,
    Mermaid,
}

pub(super) struct RouteAnswer<'a> {
    pub(super) from: NodeId,
    pub(super) route: &'a Route,
    /// Routes in use by flows of `from`, for each of their remote ends; `None` if `from` is another
    /// node, which alone knows them.
    pub(super) in_use: Option<Vec<RouteView>>,
}

pub(super) fn json(mesh: &MeshView) -> Value {
    let nodes: Vec<Value> = mesh.nodes.iter().map(node).collect();
    let links: Vec<Value> = mesh.links.iter().map(link).collect();
    let games: Vec<Value> = mesh.games.iter().map(game).collect();
    json!({"schema": 1, "nodes": nodes, "links": links, "games": games})
}

pub(super) fn route_json(mesh: &MeshView, answer: &RouteAnswer<'_>) -> Value {
    let hops: Vec<Value> = answer
        .hops()
        .map(|id| json!({"node": id.to_string(), "name": name(mesh, &id)}))
        .collect();
    let in_use = answer.in_use.as_ref().map(|routes| {
        let routes = routes.iter().map(|of| used_json(mesh, &answer.from, of));
        routes.collect::<Vec<Value>>()
    });
    json!({
        "schema": 1,
        "cost_ms": millis(answer.route.cost),
        "hops": hops,
        "in_use": in_use,
    })
}

fn used_json(mesh: &MeshView, from: &NodeId, of: &RouteView) -> Value {
    let hops = |path: &Path| -> Vec<Value> {
        hops(from, path)
            .map(|id| json!({"node": id.to_string(), "name": name(mesh, &id)}))
            .collect()
    };
    json!({
        "far_end": of.remote_end.to_string(),
        "hops": of.path.as_ref().map(hops),
        "round_trip_ms": of.round_trip.map(|trip| trip.as_secs_f64() * 1_000.0),
        "lost_percent": f64::from(of.lost_thousandths) / 10.0,
        "data_round_trip_ms": of.data_round_trip.map(|trip| trip.as_secs_f64() * 1_000.0),
        "data_lost_percent": of.data_lost_thousandths.map(|lost| f64::from(lost) / 10.0),
        "standby_hops": of.standby.as_ref().map(hops),
        "flows": of.flows,
    })
}

pub(super) fn text(mesh: &MeshView) -> String {
    let mut text = String::new();
    for of in &mesh.nodes {
        let roles = role_names(of.roles).join(",");
        let roles = if roles.is_empty() { "none" } else { &roles };
        // Writing to a string does not fail.
        writeln!(text, "{:<32} {roles:<17} {}", label(of), of.node).unwrap_or_default();
    }
    for of in &mesh.links {
        let (low, high) = (name(mesh, &of.low), name(mesh, &of.high));
        let cost = millis(of.cost);
        writeln!(
            text,
            "{low} - {high}: {cost:.1} ms, {:.1} % lost",
            percent(of)
        )
        .unwrap_or_default();
    }
    for of in &mesh.games {
        let (exit, game) = (name(mesh, &of.exit), &of.game);
        let protocol = protocol_name(of.protocol);
        match of.cost {
            Some(cost) => {
                let cost = millis(cost);
                writeln!(text, "{exit} > {game} ({protocol}): {cost:.1} ms").unwrap_or_default();
            }
            None => {
                writeln!(text, "{exit} > {game} ({protocol}): not reached").unwrap_or_default();
            }
        }
    }
    text
}

/// The route of the lowest cost, and the routes in use, as text.
pub(super) fn route_text(mesh: &MeshView, answer: &RouteAnswer<'_>) -> String {
    let names = |path: &Path| {
        let names: Vec<String> = hops(&answer.from, path).map(|id| name(mesh, &id)).collect();
        names.join(" > ")
    };
    let mut text = format!(
        "cheapest  {}: {:.1} ms\n",
        route_names(mesh, answer),
        millis(answer.route.cost)
    );
    let Some(in_use) = &answer.in_use else {
        let from = name(mesh, &answer.from);
        writeln!(text, "in use    ask {from}, which alone knows").unwrap_or_default();
        return text;
    };
    for of in in_use {
        let (path, flows) = (of.path.as_ref().map(names), of.flows);
        let path = path.unwrap_or_else(|| "no path yet".to_owned());
        let lost = f64::from(of.lost_thousandths) / 10.0;
        let trip = of.round_trip.map_or_else(
            || "not measured yet".to_owned(),
            |trip| format!("{:.1} ms", trip.as_secs_f64() * 1_000.0),
        );
        let data_trip = of.data_round_trip.map(|trip| trip.as_secs_f64() * 1_000.0);
        let data_lost = of.data_lost_thousandths.map(|lost| f64::from(lost) / 10.0);
        let data = match (data_trip, data_lost) {
            (Some(trip), Some(lost)) => format!(" (data {trip:.1} ms, {lost:.1} % lost)"),
            (None, Some(lost)) => format!(" (data {lost:.1} % lost)"),
            (_, None) => String::new(),
        };
        let standby = of.standby.as_ref().map(names);
        let standby = standby.map_or_else(String::new, |path| format!(", standby {path}"));
        writeln!(
            text,
            "in use    {path}: {trip}, {lost:.1} % lost{data}, flows {flows}{standby}"
        )
        .unwrap_or_default();
    }
    if in_use.is_empty() {
        text.push_str("in use    no flow\n");
    }
    text
}

/// The mesh as a Mermaid graph, with the links of the route drawn thick.
pub(super) fn mermaid(mesh: &MeshView, answer: Option<&RouteAnswer<'_>>) -> String {
    let mut text = String::from("graph LR\n");
    let index = |id: &NodeId| mesh.nodes.binary_search_by(|of| of.node.cmp(id)).ok();
    for (index, of) in mesh.nodes.iter().enumerate() {
        writeln!(text, "  n{index}[\"{}\"]", label(of)).unwrap_or_default();
    }
    let hops: Vec<NodeId> = answer.iter().flat_map(|answer| answer.hops()).collect();
    for of in &mesh.links {
        let (Some(low), Some(high)) = (index(&of.low), index(&of.high)) else {
            continue;
        };
        let is_on_route = hops
            .windows(2)
            .any(|pair| pair == [of.low, of.high] || pair == [of.high, of.low]);
        let line = if is_on_route { "===" } else { "---" };
        writeln!(text, "  n{low} {line}|{:.1} ms| n{high}", millis(of.cost)).unwrap_or_default();
    }
    if let Some(answer) = answer {
        let cost = millis(answer.route.cost);
        writeln!(text, "  %% {} in {cost:.1} ms", route_names(mesh, answer)).unwrap_or_default();
    }
    text
}

fn route_names(mesh: &MeshView, answer: &RouteAnswer<'_>) -> String {
    let names: Vec<String> = answer.hops().map(|id| name(mesh, &id)).collect();
    names.join(" > ")
}

impl RouteAnswer<'_> {
    fn hops(&self) -> impl Iterator<Item = NodeId> {
        hops(&self.from, &self.route.path)
    }
}

/// All nodes of a path from `from`, both ends included; a single one if they are equal.
fn hops(from: &NodeId, path: &Path) -> impl Iterator<Item = NodeId> {
    let end = (path.destination != *from).then_some(path.destination);
    core::iter::once(*from)
        .chain(path.relays.iter().copied())
        .chain(end)
}

fn node(of: &NodeView) -> Value {
    json!({
        "node": of.node.to_string(),
        "name": of.name,
        "roles": role_names(of.roles),
        "addresses": of.addresses,
        "may_relay": of.may_relay,
    })
}

fn game(of: &GameEdgeView) -> Value {
    json!({
        "game": of.game,
        "protocol": protocol_name(of.protocol),
        "exit": of.exit.to_string(),
        "cost_ms": of.cost.map(millis),
    })
}

const fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Udp => "udp",
        Protocol::Tcp => "tcp",
    }
}

fn link(of: &EdgeView) -> Value {
    json!({
        "low": of.low.to_string(),
        "high": of.high.to_string(),
        "cost_ms": millis(of.cost),
        "lost_percent": percent(of),
    })
}

fn role_names(roles: Roles) -> Vec<&'static str> {
    let all = [
        (Roles::ENTRY, "entry"),
        (Roles::RELAY, "relay"),
        (Roles::EXIT, "exit"),
    ];
    let held = all.into_iter().filter(|(role, _)| roles.contains(*role));
    held.map(|(_, name)| name).collect()
}

/// A node's name, or the first digits of its id. Names consist of letters, digits and `. _ -`, so
/// they need no escaping.
fn name(mesh: &MeshView, id: &NodeId) -> String {
    let index = mesh.nodes.binary_search_by(|of| of.node.cmp(id)).ok();
    let of = index.and_then(|index| mesh.nodes.get(index));
    of.map_or_else(|| short(id), label)
}

fn label(of: &NodeView) -> String {
    if of.name.is_empty() {
        short(&of.node)
    } else {
        of.name.clone()
    }
}

fn short(id: &NodeId) -> String {
    id.to_string().chars().take(16).collect()
}

/// A cost unit is a tenth of a millisecond.
fn millis(cost: Cost) -> f64 {
    f64::from(cost.units()) / 10.0
}

fn percent(of: &EdgeView) -> f64 {
    f64::from(of.loss.loss().ppm()) / 10_000.0
}

pub(super) struct Counts {
    stats: Stats,
    shards: Vec<Counters>,
    links: Vec<LinkView>,
    routes: Vec<RouteView>,
    games: Vec<GameEdgeView>,
    /// Version of the document in force; 0 for none.
    config_version: u64,
    is_draining: bool,
}

impl Counts {
    pub(super) fn of(node: &NodeMachine, client: &NodeClient) -> Self {
        Self {
            stats: Stats::of(node, client),
            shards: client.shards(),
            links: node.links().collect(),
            routes: node.routes().collect(),
            games: node.game_edges().collect(),
            config_version: node.document().map_or(0, |document| document.version),
            is_draining: node.draining().is_some(),
        }
    }
}

/// Prints them in Prometheus text format: `tickwire_mesh_*` for frames, node, link state and
/// document, `tickwire_relay_tcp_*` for TCP games, `tickwire_endpoint_*` for other datagrams at the
/// mesh socket, `tickwire_driver_*` for the sockets.
pub(super) fn metrics(counts: &Counts) -> String {
    let mut page = Page::default();
    let stats = &counts.stats;
    page.gauge("tickwire_mesh_links", &counts.links.len());
    let flows: usize = counts.routes.iter().map(|route| route.flows).sum();
    page.gauge("tickwire_mesh_flows", &flows);
    page.gauge("tickwire_mesh_labels", &stats.labels);
    page.gauge("tickwire_mesh_config_version", &counts.config_version);
    page.gauge("tickwire_mesh_draining", &u8::from(counts.is_draining));
    page.counters("tickwire_mesh_frames_", &stats.frames);
    page.counters("tickwire_mesh_", &stats.node);
    page.counters("tickwire_mesh_records_", &stats.records);
    page.counters("tickwire_mesh_gossip_", &stats.gossip);
    if let Some(config) = &stats.config {
        page.counters("tickwire_mesh_config_", config);
    }
    if let Some(tcp) = &stats.tcp {
        page.gauge("tickwire_relay_tcp_connections", &tcp.connections);
        page.gauge("tickwire_relay_tcp_ports", &tcp.ports);
        page.counters("tickwire_relay_tcp_", &tcp.stats);
    }
    if let Some(tunnels) = &stats.tunnels {
        page.counters("tickwire_mesh_tunnel_", tunnels);
    }
    page.counters("tickwire_endpoint_", &stats.endpoint);
    page.counters("tickwire_driver_", &stats.driver);
    page.counters("tickwire_mesh_strays_", &stats.strays);
    let mut add_shards = |name, value: fn(&Counters) -> u64| {
        let shards = (0_u8..).zip(&counts.shards);
        let rows =
            shards.map(|(index, driver)| (format!("shard=\"{index}\""), value(driver).to_string()));
        page.labelled((name, "counter"), rows);
    };
    add_shards("tickwire_mesh_shard_datagrams_in_total", |driver| {
        driver.datagrams_in
    });
    add_shards("tickwire_mesh_shard_dropped_in_full_total", |driver| {
        driver.dropped_in_full
    });
    add_links(&mut page, counts);
    page.labelled(
        ("tickwire_mesh_game_edge_reached", "gauge"),
        counts.games.iter().map(|edge| {
            let reached = u8::from(edge.cost.is_some());
            (edge_label(edge), reached.to_string())
        }),
    );
    page.labelled(
        ("tickwire_mesh_game_edge_delay_seconds", "gauge"),
        counts.games.iter().filter_map(|edge| {
            let cost = edge.cost?;
            Some((edge_label(edge), seconds(cost)))
        }),
    );
    page.into_text()
}

fn add_links(page: &mut Page, counts: &Counts) {
    page.labelled(
        ("tickwire_mesh_link_delay_seconds", "gauge"),
        counts.links.iter().filter_map(|link| {
            let report = link.report.filter(LinkReport::is_up)?;
            let label = format!("node=\"{}\"", link.node);
            Some((label, seconds(report.delay)))
        }),
    );
    page.labelled(
        ("tickwire_mesh_link_loss_ratio", "gauge"),
        counts.links.iter().filter_map(|link| {
            let ppm = link.report?.loss.loss().ppm();
            let label = format!("node=\"{}\"", link.node);
            Some((label, format!("{}.{:06}", ppm / 1_000_000, ppm % 1_000_000)))
        }),
    );
    page.labelled(
        ("tickwire_mesh_link_detour", "gauge"),
        counts.links.iter().filter_map(|link| {
            let label = format!("node=\"{}\",relay=\"{}\"", link.node, link.detour?);
            Some((label, "1".to_owned()))
        }),
    );
}

fn edge_label(edge: &GameEdgeView) -> String {
    let (game, exit) = (escaped(&edge.game), edge.exit);
    let protocol = protocol_name(edge.protocol);
    format!("game=\"{game}\",protocol=\"{protocol}\",exit=\"{exit}\"")
}

/// Escapes a label's value, since game names are arbitrary.
fn escaped(name: &str) -> String {
    let name = name.replace('\\', "\\\\").replace('"', "\\\"");
    name.replace('\n', "\\n")
}

fn seconds(cost: Cost) -> String {
    let tenths = u64::from(cost.units());
    format!("{}.{:04}", tenths / 10_000, tenths % 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_games_are_escaped_in_labels() {
        assert_eq!(escaped("doom"), "doom");
        assert_eq!(escaped("a\"}\n1\\"), r#"a\"}\n1\\"#);
        assert_eq!(seconds(Cost::from_units(12_345)), "1.2345");
    }
}
