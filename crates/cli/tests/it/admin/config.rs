//! Documents: signed, sent to one node, in force at all, kept when nodes are killed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use daemon::relay::ProcessEvent;

use super::{ENTRY, EXIT, RELAY, Testbed, assert_refused, in_force, text, tickwire_admin, wait};
use crate::mesh_node::PATIENCE;

#[test]
fn pg12_pgx7_a_document_spreads_to_all_nodes_and_survives_a_kill() {
    let testbed = Testbed::new();
    let mut nodes = testbed.start_all();
    let one = testbed.document(1, &[testbed.echo()]);

    // A foreign signature changes nothing.
    assert_refused(
        &testbed.put(RELAY, &one, "stranger"),
        4,
        "no admin in force",
    );
    assert_refused(&testbed.admin(RELAY, "get", &[]), 1, "no signed document");

    let put = text(&testbed.put(RELAY, &one, "admin"));
    assert!(put.contains("\"version\":1"), "{put}");
    for node in &nodes {
        let news = in_force(node, 1);
        let ProcessEvent::ConfigInForce { added, .. } = news else {
            panic!("{news:?}")
        };
        assert_eq!(added, ["echo"]);
    }
    for node in [ENTRY, RELAY, EXIT] {
        let reported = text(&testbed.admin(node, "get", &[]));
        let written = fs::read_to_string(&one).unwrap();
        assert_eq!(reported.trim_end(), written, "byte for byte");
    }
    assert!(testbed.play(&testbed.player(), b"hello"));

    // The same document is accepted again; older ones and others of the same version are rejected.
    let again = text(&testbed.put(ENTRY, &one, "admin"));
    assert!(again.contains("\"is_new\":false"), "{again}");
    let two = testbed.document(2, &[testbed.echo()]);
    text(&testbed.put(EXIT, &two, "other"));
    for node in &nodes {
        in_force(node, 2);
    }
    for node in &mut nodes {
        node.kill().unwrap();
    }
    let nodes = testbed.start_all();
    assert_refused(&testbed.put(RELAY, &one, "admin"), 4, "is not above 2");
    let other = testbed.document(2, &[]);
    assert_refused(&testbed.put(RELAY, &other, "admin"), 4, "two documents of");
    for node in [ENTRY, RELAY, EXIT] {
        let reported = text(&testbed.admin(node, "get", &[]));
        assert!(reported.contains("\"version\":2"), "{reported}");
    }
    assert!(testbed.play(&testbed.player(), b"again"));
    drop(nodes);

    // A damaged store stops the node.
    let store = testbed.path("paris.config");
    let mut bytes = fs::read(&store).unwrap();
    let last = bytes.len() - 20;
    bytes[last] ^= 1;
    fs::write(&store, bytes).unwrap();
    let mut node = testbed.start(RELAY);
    let status = node.stop(PATIENCE).unwrap().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn pg14_a_late_node_fetches_the_document() {
    let testbed = Testbed::new();
    let early = [ENTRY, EXIT].map(|node| testbed.start(node));
    // Its port answers once it is ready.
    early[0].wait_for(PATIENCE, |news| {
        matches!(news, ProcessEvent::AdminReady { .. }).then_some(())
    });
    text(&testbed.put(ENTRY, &testbed.document(7, &[testbed.echo()]), "admin"));
    for node in &early {
        in_force(node, 7);
    }
    let late = testbed.start(RELAY);
    in_force(&late, 7);
    // It is in force before it is on disk.
    assert!(appears(&testbed.path("paris.config")));
}

#[test]
fn pgx7_a_failed_store_is_reported_to_the_admin() {
    let mut testbed = Testbed::new();
    let config = testbed.sandbox.config_mut(RELAY).unwrap();
    config.signed.as_mut().unwrap().store = "missing/config".into();
    let node = testbed.start(RELAY);
    node.wait_for(PATIENCE, |news| {
        matches!(news, ProcessEvent::AdminReady { .. }).then_some(())
    });
    let document = testbed.document(1, &[]);
    assert_refused(
        &testbed.put(RELAY, &document, "admin"),
        4,
        "not on disk yet",
    );
    let reported = node.wait_for(PATIENCE, |news| {
        matches!(news, ProcessEvent::ConfigNotStored { version: 1, .. }).then_some(())
    });
    assert!(reported.is_some());
    // The write is retried until the folder exists.
    fs::create_dir(testbed.path("missing")).unwrap();
    assert!(appears(&testbed.path("missing/config")));
}

/// Waits for a file.
fn appears(path: &Path) -> bool {
    (0..300).any(|_| path.exists() || wait(Duration::from_millis(100)))
}

#[test]
fn pgx7_documents_are_signed_by_several_admins_offline() {
    let testbed = Testbed::new();
    let document = testbed.document(3, &[testbed.echo()]);
    let (first, both) = (testbed.path("first"), testbed.path("both"));
    let sign = |from: &Path, key: &str, to: &Path| {
        tickwire_admin("sign")
            .arg(from)
            .arg("--key")
            .arg(testbed.path(key))
            .arg("--out")
            .arg(to)
            .output()
            .unwrap()
    };
    let said = text(&sign(&document, "admin", &first));
    assert!(
        said.contains("version 3, games: 1, signatures of its admins: 1 (1 needed), sha256 "),
        "{said}"
    );
    let said = text(&sign(&first, "other", &both));
    assert!(said.contains("signatures of its admins: 2"), "{said}");
    let said = text(
        &tickwire_admin("check")
            .arg(&both)
            .arg("--json")
            .output()
            .unwrap(),
    );
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["signers"].as_array().unwrap().len(), 2);
    assert_eq!(said["games"], serde_json::json!(["echo"]));

    let bad = testbed.path("bad.json");
    fs::write(&bad, "{\"network\": 7}").unwrap();
    assert_refused(&sign(&bad, "admin", &first), 2, "bad.json");
    let mut bytes = fs::read(&both).unwrap();
    bytes.truncate(bytes.len() - 1);
    fs::write(&both, bytes).unwrap();
    let cut = tickwire_admin("check").arg(&both).output().unwrap();
    assert_refused(&cut, 2, "both");
    assert_refused(&sign(&document, "missing", &first), 2, "missing");

    // Games of a seed file are imported.
    let games = testbed.path("seed.json");
    fs::write(
        &games,
        r#"{"games": [{"id": "mc", "protocol": "HAProxy", "host": "mc.example", "port": 25565,
            "listen_port": 25565, "entry_node": {"type": "all"}, "exit_node": {"type": "white",
            "white_list": ["12D3KooW"]}}]}"#,
    )
    .unwrap();
    let node = "ab".repeat(32);
    let import = tickwire_admin("import-games")
        .arg(&games)
        .args([
            "--node",
            &format!("12D3KooW={node}"),
            "--host",
            "mc.example=192.0.2.9",
        ])
        .output()
        .unwrap();
    let said = text(&import);
    assert!(
        said.contains("192.0.2.9:25565") && said.contains(&node),
        "{said}"
    );
    let import = tickwire_admin("import-games").arg(&games).output().unwrap();
    assert_refused(&import, 2, "mc.example");
}
