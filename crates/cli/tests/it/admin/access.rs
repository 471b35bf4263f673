//! Authorization of the admin interface.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use daemon::relay::ProcessEvent;
use daemon::relay::sandbox::NodeProcess;

use super::{EXIT, RELAY, Testbed, assert_refused, text, tickwire_admin};
use crate::http;
use crate::mesh_node::PATIENCE;

fn ready(node: &NodeProcess) {
    let reported = node.wait_for(PATIENCE, |news| {
        matches!(news, ProcessEvent::AdminReady { .. }).then_some(())
    });
    assert!(reported.is_some());
}

#[test]
fn pgx12_pgd_p13_all_but_health_requires_the_token() {
    let testbed = Testbed::new();
    let node = testbed.start(RELAY);
    ready(&node);
    let address = testbed.http(RELAY);
    let wrong = format!("Bearer {}", "ab".repeat(32));
    for line in [
        "GET /v1/config",
        "PUT /v1/config",
        "GET /v1/config/signed",
        "GET /v1/graph",
        "GET /v1/route?from=a&to=b",
        "GET /v1/drain",
        "POST /v1/drain",
        "DELETE /v1/drain",
        "GET /metrics",
    ] {
        for headers in [&[][..], &[("authorization", wrong.as_str())]] {
            let answer = http::ask(address, line, headers, "");
            answer.assert_refused(401, "no_token");
            assert!(answer.head.contains("www-authenticate: bearer"), "{line}");
        }
    }
    let health = http::ask(address, "GET /health", &[], "");
    assert_eq!((health.status, health.text("status")), (200, "up"));
    http::ask(address, "GET /else", &[], "").assert_refused(404, "not_found");
    http::ask(address, "DELETE /health", &[], "").assert_refused(405, "no_method");

    // The token was created at the start, with mode 0600.
    let path = testbed.path("paris.token");
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let token = fs::read_to_string(&path).unwrap();
    let right = format!("Bearer {token}");
    let bearer = [("authorization", right.as_str())];
    let graph = http::ask(address, "GET /v1/graph", &bearer, "");
    assert_eq!(graph.status, 200);
    let plain = http::ask(address, "PUT /v1/config", &bearer, "{}");
    plain.assert_refused(415, "not_signed");
    for line in ["GET /v1/graph?format=svg", "GET /v1/route?from=a"] {
        http::ask(address, line, &bearer, "").assert_refused(400, "bad_request");
    }
    let line = "GET /v1/route?from=nobody&to=b";
    http::ask(address, line, &bearer, "").assert_refused(404, "not_found");
    let size = (1 << 20) + 1;
    let large = format!(
        "PUT /v1/config HTTP/1.1\r\nhost: x\r\nauthorization: {right}\r\n\
         content-type: application/octet-stream\r\ncontent-length: {size}\r\n\r\n"
    );
    let answer = http::Answer::read(http::raw(address, large.as_bytes()));
    assert_eq!(answer.status, 413, "{answer:?}");

    // Without the token, with a wrong one, and with an unreadable one.
    fs::write(&path, "cd".repeat(32)).unwrap();
    assert_refused(&testbed.admin(RELAY, "graph", &[]), 4, "Authorization");
    fs::write(&path, "").unwrap();
    assert_refused(&testbed.admin(RELAY, "graph", &[]), 2, "no token");
    fs::remove_file(&path).unwrap();
    assert_refused(&testbed.admin(RELAY, "graph", &[]), 2, "paris.token");
    fs::write(&path, token).unwrap();
    text(&testbed.admin(RELAY, "health", &[]));
    fs::copy(&path, testbed.path("oslo.token")).unwrap();
    assert_refused(&testbed.admin(EXIT, "graph", &[]), 3, "no response from");
}

#[test]
fn health_needs_no_token_and_requests_follow_the_rfcs() {
    let testbed = Testbed::new();
    let node = testbed.start(RELAY);
    ready(&node);
    let address = testbed.http(RELAY);
    // Health needs no token, and the host may be a name.
    let health = tickwire_admin("health")
        .args(["--http", &address.to_string()])
        .output()
        .unwrap();
    assert!(text(&health).contains("\"up\""));
    let health = tickwire_admin("health")
        .args([
            "--http",
            &address.to_string(),
            "--token-file",
            "/no/such/file",
        ])
        .output()
        .unwrap();
    text(&health);
    let token = fs::read_to_string(testbed.path("paris.token")).unwrap();
    let right = format!("bEARER  {token}");
    let bearer = [("authorization", right.as_str())];
    // Media types ignore case and parameters; the body is not a document.
    let headers = [bearer[0], ("CONTENT-TYPE", "Application/Octet-Stream; a=b")];
    let odd = http::ask(address, "PUT /%76%31/config", &headers, "junk");
    odd.assert_refused(422, "refused");
    let line = "GET /v1/route?from=paris&to=paris&%66ormat=text&speed=1";
    http::ask(address, line, &bearer, "").assert_refused(400, "bad_request");
}

#[test]
fn pgx12_pgd_p13_the_admin_interface_is_loopback_only() {
    let mut testbed = Testbed::new();
    let good = testbed.sandbox.config(RELAY).unwrap().clone();
    let refused = |testbed: &mut Testbed, change: &dyn Fn(&mut daemon::relay::FileConfig)| {
        let config = testbed.sandbox.config_mut(RELAY).unwrap();
        *config = good.clone();
        change(config);
        let mut node = testbed.start(RELAY);
        node.stop(PATIENCE).unwrap().unwrap().code()
    };
    let code = refused(&mut testbed, &|config| {
        config.admin.as_mut().unwrap().listen = "192.0.2.1:80".parse().unwrap();
    });
    assert_eq!(code, Some(2));
    let code = refused(&mut testbed, &|config| config.members = Some(Vec::new()));
    assert_eq!(code, Some(2));
    let code = refused(&mut testbed, &|config| {
        config.roles = [daemon::relay::FileRole::Entry].into();
        config.signed.as_mut().unwrap().listen.clear();
    });
    assert_eq!(code, Some(2));
    let busy = std::net::TcpListener::bind(testbed.http(RELAY)).unwrap();
    assert_eq!(refused(&mut testbed, &|_| {}), Some(4));
    drop(busy);
    let token = testbed.path("paris.token");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(refused(&mut testbed, &|_| {}), Some(2));
}

#[test]
fn pg1_pgd_p14_an_identity_is_created_once() {
    let testbed = Testbed::new();
    let path = testbed.path("paris.pem");
    fs::remove_file(&path).unwrap();
    let id = |node: &NodeProcess| {
        node.wait_for(PATIENCE, |news| {
            if let ProcessEvent::Ready { node, .. } = news {
                Some(node)
            } else {
                None
            }
        })
        .unwrap()
    };
    let mut node = testbed.start(RELAY);
    let first = id(&node);
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    node.kill().unwrap();
    assert_eq!(id(&testbed.start(RELAY)), first);
}
