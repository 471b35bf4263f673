//! All data of one player: export and deletion, over HTTP and by `tickwire hub person`.

use serde_json::{Value, json};
use wire::ClientId;

use super::command::{json as run_json, run, text};
use super::statistics::recorded;
use super::{Api, base64};
use crate::net::until;

/// The lines of an export, by kind.
fn export(api: &Api, player: &str) -> Vec<Value> {
    let lines = text(api, "admin", &["person", "export", player]);
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (end, entries) = lines.split_last().unwrap();
    assert_eq!(end["kind"], "complete");
    assert_eq!(end["entries"], entries.len());
    entries.to_vec()
}

fn of_kind<'a>(entries: &'a [Value], kind: &str) -> Vec<&'a Value> {
    entries.iter().filter(|it| it["kind"] == kind).collect()
}

#[test]
fn ha9_a_players_mail_keys_and_records_are_exported_and_deleted() {
    let mut api = Api::new();
    for number in 0..3 {
        for player in ["42", "4"] {
            api.ask(
                "write",
                &format!("POST /v1/mail/{player}"),
                &format!("mail {number}"),
            );
        }
    }
    for number in 0..200 {
        let put = api.ask("write", &format!("PUT /v1/kv/player/42/item-{number}"), "x");
        assert_eq!(put.status, 200);
    }
    api.ask("write", "PUT /v1/kv/player/4/name", "Ann");
    api.ask("write", "PUT /v1/kv/zone/42", "of nobody");
    drop(recorded(&api, ClientId(42)));

    let all = export(&api, "42");
    let mails = of_kind(&all, "mail");
    assert_eq!((mails.len(), &mails[1]["body"]), (3, &base64(b"mail 1")));
    assert_eq!(of_kind(&all, "key").len(), 200);
    let records = of_kind(&all, "record");
    assert_eq!(records.len(), 7);
    assert_eq!(
        (
            &records[0]["name"],
            &records[0]["sample"],
            &records[0]["value"]
        ),
        (&json!("kill"), &json!("event"), &json!(1))
    );
    let others = export(&api, "4");
    assert_eq!((others.len(), of_kind(&others, "record").len()), (4, 0));

    api.restart();
    assert_eq!(export(&api, "42"), all, "the same after a restart");
    let deleted = run_json(&api, "admin", &["person", "delete", "42"]);
    assert_eq!(
        (&deleted["mails"], &deleted["keys"]),
        (&json!(3), &json!(200))
    );
    assert!(deleted["records_until"].as_u64().unwrap() > 1_700_000_000);
    api.restart();
    let left = export(&api, "42");
    assert_eq!((left.len(), of_kind(&left, "record").len()), (7, 7));
    assert_eq!(export(&api, "4"), others);
    assert_eq!(api.ask("read", "GET /v1/kv/zone/42", "").status, 200);

    let refused = run(&api, "write", &["person", "delete", "4"]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    api.ask("admin", "GET /v1/players/42/data?after=x", "")
        .assert_refused(400, "bad_query");
}

#[test]
fn ha9_person_prefix_is_configurable() {
    let api = Api::with(|config| config.person_prefix = "p={player}.".parse().unwrap());
    api.ask("write", "PUT /v1/kv/p=42.name", "Ann");
    api.ask("write", "PUT /v1/kv/player/42/name", "Ann");
    until("the key is exported", || {
        let all = export(&api, "42");
        (all.len() == 1 && all[0]["key"] == "p=42.name").then_some(())
    });
}
