//! Statistics over HTTP and by `tickwire hub stats`.

use std::convert::Infallible;
use std::ops::ControlFlow;

use crypto::Ring;
use hub::stats::{StatKey, StatText};
use hub::{Name, Node, NodeConfig, NodeEvent};
use serde_json::{Value, json};
use servicer::{HubApplication, HubNode, StatsRecorders, StreamHandle};
use wire::{ClientId, Instant};

use super::Api;
use super::command::{json, run, text};
use crate::net::until;

struct Silent;

impl HubApplication for Silent {
    type Request = Infallible;

    fn apply_request(&mut self, _: Instant, _: &mut Node, request: Infallible) -> ControlFlow<()> {
        match request {}
    }

    fn on_event(&mut self, _: Instant, _: &mut Node, _: NodeEvent) {}
}

/// Starts a node that counts 3 kills in `eu` and 4 in `us`, of one player, and one tick.
pub(super) fn recorded(api: &Api, player: ClientId) -> StreamHandle<Infallible> {
    let (recorders, inlet) = StatsRecorders::new();
    let identity = api.net.identity("server-0");
    let join_file = api.net.join_file();
    let node = HubNode {
        identity: &identity,
        join_file: &join_file,
        instance: crate::server::instance(&mut Ring::new()),
    };
    let node = node.spawn_with_statistics("recorder", NodeConfig::default(), Silent, inlet);
    let mut recorder = recorders.recorder(8, 64);
    let name = |text: &str| Name::new(text).unwrap();
    for (region, count) in [("eu", 3), ("us", 4)] {
        let region = StatText::new(region).unwrap();
        let key = StatKey::new(name("kill"), vec![(name("region"), region)]).unwrap();
        let series = recorder.register(key).unwrap();
        for _ in 0..count {
            recorder.record(series, 1.into(), Some(player));
        }
    }
    let ticks = recorder.register(name("tick_us").into()).unwrap();
    recorder.record(ticks, 412.into(), None);
    recorder.flush();
    until("the samples are stored", || {
        let names = api.ask("read", "GET /v1/stats", "");
        (names.json["names"] == json!(["kill", "tick_us"])).then_some(())
    });
    node.unwrap()
}

#[test]
fn ha7_statistics_are_queried_by_http_with_columns_groups_and_filters() {
    let api = Api::new();
    let _node = recorded(&api, ClientId(42));
    let page = api.ask("read", "GET /v1/stats?max=1", "");
    assert_eq!(page.json, json!({"names": ["kill"], "next": "kill"}));
    let rest = api.ask("read", "GET /v1/stats?max=1&after=kill", "");
    assert_eq!(rest.json, json!({"names": ["tick_us"], "next": null}));

    let line = "GET /v1/stats/kill?columns=count,uniques&by=region&from=now-1h&to=now-0s&step=1d";
    let all = api.ask("read", line, "");
    assert_eq!(all.status, 200, "{all:?}");
    let groups = |rows: &Value| {
        let rows = rows.as_array().unwrap().iter();
        let rows = rows.map(|row| (row["group"]["region"].clone(), row["values"].clone()));
        rows.collect::<Vec<_>>()
    };
    let values = |count: u32| json!({"count": f64::from(count), "uniques": 1.0});
    assert_eq!(
        groups(&all.json["rows"]),
        [(json!("eu"), values(3)), (json!("us"), values(4))]
    );
    assert_eq!(all.json["step"], 86_400);
    assert_eq!(all.json["next"], Value::Null);
    let filtered = api.ask("read", &format!("{line}&where=region%3Dus"), "");
    assert_eq!(groups(&filtered.json["rows"]), [(json!("us"), values(4))]);
    let none = api.ask("read", "GET /v1/stats/join", "");
    assert_eq!((none.status, &none.json["rows"]), (200, &json!([])));

    for query in ["step=7s", "columns=p101", "by=a%20b", "from=yesterday"] {
        api.ask("read", &format!("GET /v1/stats/kill?{query}"), "")
            .assert_refused(400, "bad_query");
    }
    api.ask("read", "GET /v1/stats/KILL", "")
        .assert_refused(400, "bad_name");
}

#[test]
fn ha4_statistics_are_printed_as_a_table_and_as_json() {
    let api = Api::new();
    let _node = recorded(&api, ClientId(42));
    assert_eq!(text(&api, "read", &["stats"]), "kill\ntick_us\n");
    let words = [
        "stats",
        "kill",
        "--step",
        "1d",
        "--by",
        "region",
        "--columns",
        "count,max",
    ];
    let table = text(&api, "read", &words);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "start\tregion\tcount\tmax");
    assert!(lines[1].ends_with("\teu\t3.0\t1.0"), "{table}");
    assert!(lines[2].ends_with("\tus\t4.0\t1.0"), "{table}");
    let all = json(&api, "read", &words);
    assert_eq!(all["rows"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&all["schema"], &all["by"]),
        (&json!(1), &json!(["region"]))
    );
    let wrong = run(&api, "read", &["stats", "kill", "--step", "7s"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}
