//! The command line: exit status, messages, files.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;

use crate::net::{Net, tickwire};

#[test]
fn without_arguments_the_usage_is_printed() {
    for words in [&[][..], &["hub"], &["key"], &["matchmaker"]] {
        let end = End::of(tickwire().args(words));
        assert_eq!(end.code, 2);
        assert!(end.stderr.contains("Usage: tickwire"), "{}", end.stderr);
    }
    assert_eq!(End::of(tickwire().arg("fly")).code, 2);
    let end = End::of(tickwire().arg("--help"));
    assert_eq!(end.code, 0);
    assert!(end.stdout.contains("matchmaker"), "{}", end.stdout);
}

#[test]
fn a_key_is_created_shown_and_not_overwritten() {
    let net = Net::new();
    let path = net.path("new.pem");
    let made = End::of(tickwire().args(["key", "new"]).arg(&path));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let shown = End::of(tickwire().args(["key", "public"]).arg(&path));
    assert_eq!((shown.code, &shown.stdout), (0, &made.stdout));
    let json = End::of(tickwire().args(["key", "public", "--json"]).arg(&path));
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    for field in ["public_key", "node_id"] {
        assert!(
            made.stdout.contains(json[field].as_str().unwrap()),
            "{json}"
        );
    }
    let again = End::of(tickwire().args(["key", "new"]).arg(&path));
    again.assert(4, "new.pem");
    let missing = End::of(tickwire().args(["key", "public"]).arg(net.path("no.pem")));
    missing.assert(2, "no.pem");
    let folder = End::of(tickwire().args(["key", "public"]).arg(net.path("")));
    folder.assert(2, "identity file");
}

#[test]
fn a_join_file_is_created_read_and_not_overwritten() {
    let net = Net::new();
    let path = net.path("new.join");
    let grant =
        |role: &str, name: &str, rest: &str| format!("{role}={}{rest}", net.key(name).display());
    let grants = [
        grant("hub", "hub", ",name=h-1,address=127.0.0.1:7400"),
        grant("matchmaker", "matchmaker", ""),
        grant("game-node", "server-0", ",name=eu-1"),
        format!("admin={}", "ab".repeat(32)),
    ];
    let made = End::of(
        tickwire()
            .args(["key", "join-file"])
            .arg(&path)
            .args(&grants),
    );
    assert_eq!(made.code, 0, "{}", made.stderr);
    let file = daemon::trust::read_join_file(&path).unwrap();
    assert_eq!(file.grants.len(), 4);
    assert_eq!(file.grants[1].services.len(), 1, "a matchmaker serves");
    assert!(!made.stdout.contains("secret"), "{}", made.stdout);
    End::of(
        tickwire()
            .args(["key", "join-file"])
            .arg(&path)
            .args(&grants),
    )
    .assert(4, "there is a file already");
    let other = net.path("other.join");
    for (grant, needle) in [
        (grant("hub", "hub", ""), "a hub needs an address"),
        (grant("king", "hub", ""), "the role is none of"),
        (grant("stats", "hub", ",colour=red"), "an option is none of"),
        (grant("stats", "hub", ",name=Big"), "a name has"),
        ("stats".to_owned(), "ROLE=KEY"),
        ("stats=no.pem".to_owned(), "no.pem"),
        (
            grant("hub", "hub", ",address=nowhere"),
            "address= expects HOST:PORT",
        ),
        (
            grant("hub", "hub", ",address=192.0.2.7:74000"),
            "the port behind address= is not within 1 to 65535",
        ),
        (grant("stats", "hub", ""), "a join file names a hub"),
    ] {
        End::of(
            tickwire()
                .args(["key", "join-file"])
                .arg(&other)
                .arg(&grant),
        )
        .assert(2, needle);
    }
    assert!(!other.exists());
}

#[test]
fn an_invalid_file_is_reported_in_one_sentence() {
    let net = Net::new();
    let run = |join_file: &str| {
        let mut hub = tickwire();
        hub.args(["hub", "run", "--identity"])
            .arg(net.key("hub"))
            .arg("--data")
            .arg(net.path("data"))
            .arg("--join-file")
            .arg(net.path(join_file));
        let mut matchmaker = tickwire();
        matchmaker
            .args(["matchmaker", "run", "--app-id", "1", "--plain-http"])
            .args(["--no-servers", "--http", "127.0.0.1:0", "--identity"])
            .arg(net.key("matchmaker"))
            .arg("--join-file")
            .arg(net.path(join_file));
        let (hub, matchmaker) = (End::of(&mut hub), End::of(&mut matchmaker));
        // Hub and matchmaker read the same file, and each reports its missing entry.
        if !hub.stderr.contains("does not list") {
            assert_eq!(
                (hub.code, &hub.stderr),
                (matchmaker.code, &matchmaker.stderr)
            );
        }
        matchmaker.assert(2, "");
        hub
    };
    run("none.join").assert(2, "none.join: join file: there is no such file");
    std::fs::create_dir(net.path("folder.join")).unwrap();
    run("folder.join").assert(2, "folder.join: join file: this is a folder");
    write(&net, "bad.join", "tickwire-join 1\nnetwork-secret 12\n");
    run("bad.join").assert(2, "bad.join: join file: line 2: expected a secret of 64");
    write(&net, "empty.join", "");
    run("empty.join").assert(2, "empty.join: join file: the file is empty");
    std::fs::write(net.path("open.join"), "tickwire-join 1\n").unwrap();
    #[cfg(unix)]
    run("open.join").assert(2, "others may read");
    write(
        &net,
        "no-hub.join",
        &format!("tickwire-join 1\nnetwork-secret {}\n", "00".repeat(32)),
    );
    run("no-hub.join").assert(2, "does not list node");
    std::fs::write(net.path("binary.join"), [0xff; 100]).unwrap();
    #[cfg(unix)]
    chmod(&net, "binary.join");
    run("binary.join").assert(2, "binary.join: join file: ");
}

#[test]
fn a_busy_port_is_one_sentence() {
    let net = Net::new();
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let mut command = tickwire();
    command
        .args(["hub", "run", "--listen", &address, "--identity"])
        .arg(net.key("hub"))
        .arg("--join-file")
        .arg(net.join_path())
        .arg("--data")
        .arg(net.path("data"));
    let sentence = format!("TCP port {address} is in use by another program");
    End::of(&mut command).assert(4, &sentence);
    matchmaker(&net, &address, &["--plain-http", "--no-servers"]).assert(4, &sentence);
}

#[test]
fn plain_http_requires_the_option_and_loopback() {
    let net = Net::new();
    let local = "127.0.0.1:0";
    matchmaker(&net, local, &["--no-servers"]).assert(2, "--plain-http");
    let open = "0.0.0.0:0";
    matchmaker(&net, open, &["--plain-http", "--no-servers"]).assert(2, "loopback");
    matchmaker(
        &net,
        local,
        &["--plain-http", "--no-servers", "--teams", "0"],
    )
    .assert(2, "0 teams");
    matchmaker(&net, local, &["--plain-http", "--ports", "1-2", "--", "x"]).assert(2, "--slot");
    matchmaker(&net, local, &["--plain-http"]).assert(2, "--ports");
}

#[test]
fn status_reports_by_its_exit_status() {
    let mut net = Net::new();
    let ask = |address: &str, rest: &[&str]| {
        End::of(
            tickwire()
                .args(["matchmaker", "status", "--http", address])
                .args(rest),
        )
    };
    // No server: a port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    ask(&free.to_string(), &[]).assert(3, "no response from");
    // A server that never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    ask(&address, &["--timeout", "1"]).assert(5, "did not answer within 1 s");
    // A different server.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        // Unread bytes would reset the connection.
        assert!(stream.read(&mut [0; 1_024]).unwrap() > 0);
        stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
    });
    ask(&address, &[]).assert(3, "is not a matchmaker");
    answering.join().unwrap();
    // The matchmaker without its hub, then with it.
    let matchmaker = net.matchmaker(None);
    let address = matchmaker.address().to_string();
    ask(&address, &[]).assert(1, "no link to its hub");
    let _hub = net.hub();
    let end = crate::net::until("the hub is joined", || {
        let end = ask(&address, &["--json"]);
        (end.code == 0).then_some(end)
    });
    let json: Value = serde_json::from_str(&end.stdout).unwrap();
    assert_eq!((&json["schema"], &json["hub"]), (&1.into(), &"up".into()));
    let end = ask(&address, &[]);
    assert!(
        end.stdout.starts_with("hub              up\n"),
        "{}",
        end.stdout
    );
}

#[test]
fn exit_statuses_agree_with_the_page() {
    let net = Net::new();
    let new = net.path("new.pem");
    let new = new.to_str().unwrap();
    let matchmaker = net.matchmaker(None);
    let without_hub = matchmaker.address().to_string();
    let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = bind();
    let silent = silent.local_addr().unwrap().to_string();
    let free = bind().local_addr().unwrap().to_string();
    let status = ["matchmaker", "status", "--http"];
    let ask = |address| [&status[..], &[address]].concat();
    let table = [
        (0, vec!["key", "new", new]),
        (1, ask(without_hub.as_str())),
        (2, vec!["key", "new", "--no-such-option"]),
        (3, ask(free.as_str())),
        (4, vec!["key", "new", new]),
        (5, [ask(silent.as_str()), vec!["--timeout", "1"]].concat()),
    ];
    for (code, words) in &table {
        let end = End::of(tickwire().args(words));
        assert_eq!(end.code, *code, "{words:?}: {}", end.stderr);
    }
    // The page lists exactly these.
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/codes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("## Exit status of `tickwire`\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let listed: Vec<i32> = rows
        .filter_map(|row| row.split(' ').next()?.parse().ok())
        .collect();
    let codes: Vec<i32> = table.iter().map(|(code, _)| *code).collect();
    assert_eq!(listed, codes);
}

#[test]
fn a_matchmaker_that_could_start_no_server_does_not_start() {
    let net = Net::new();
    let server = net.key("server-0");
    let slot = ["--plain-http", "--slot", server.to_str().unwrap()];
    let run = |rest: &[&str]| {
        let words: Vec<&str> = slot.iter().chain(rest).copied().collect();
        matchmaker(&net, "127.0.0.1:0", &words)
    };
    let no_program = ["--ports", "40000", "--", "./no-such-game-server"];
    run(&no_program).assert(2, "./no-such-game-server: the game server: No such file");
    let in_path = ["--ports", "40000", "--", "no-such-game-server"];
    run(&in_path).assert(2, "no such program in PATH");
    let folder = net.path("");
    let is_folder = ["--ports", "40000", "--", folder.to_str().unwrap()];
    run(&is_folder).assert(2, "directory");
    let sentence = "found 1 --slot for 6 ports (40000-40005), expected as many";
    run(&["--ports", "40000-40005", "--", "sh"]).assert(2, sentence);
    let warm = ["--ports", "40000", "--warm", "2", "--", "sh"];
    run(&warm).assert(2, "found --warm 2, expected at most 1");
    let nowhere = ["--ports", "40000", "--server-ip", "0.0.0.0", "--", "sh"];
    run(&nowhere).assert(2, "found --server-ip 0.0.0.0");
    run(&["--ports", "5-4", "--", "sh"]).assert(2, "FIRST-LAST");
}

#[test]
fn an_invalid_log_filter_is_rejected_at_the_start() {
    let net = Net::new();
    for (command, rest) in [("hub", "--data"), ("matchmaker", "--app-id")] {
        for filter in ["eror", "info,daemon=debgu", "daemon", "[x]=info"] {
            let mut line = tickwire();
            line.args([command, "run", rest, "1", "--identity"])
                .arg(net.key("hub"))
                .arg("--join-file")
                .arg(net.join_path());
            if command == "matchmaker" {
                line.args(["--no-servers", "--plain-http", "--http", "127.0.0.1:0"]);
            }
            let end = End::with_log(&mut line, filter);
            end.assert(2, "TICKWIRE_LOG: found ");
            let wrong = filter.rsplit(',').next().unwrap();
            assert!(end.stderr.contains(wrong), "{}", end.stderr);
            assert!(end.stderr.contains("error, warn, info"), "{}", end.stderr);
        }
    }
    let mut relay = tickwire();
    relay.args(["relay", "--config", "node.json"]);
    End::with_log(&mut relay, "eror").assert(2, "TICKWIRE_LOG: found ");
}

#[test]
fn a_host_may_be_a_name() {
    let net = Net::new();
    let program = ["matchmaker", "status", "--http"];
    let ask = |host: &str| End::of(tickwire().args(program).arg(host));
    let running = net.matchmaker(None);
    let port = running.address().port();
    for host in [
        format!("localhost:{port}"),
        format!("LOCALHOST:{port}"),
        format!("http://127.0.0.1:{port}/"),
    ] {
        ask(&host).assert(1, "no link to its hub");
    }
    ask("no-such-host.invalid:80").assert(3, "no-such-host.invalid:80: the host has no address");
    for (host, what) in [
        ("localhost", "there is no port"),
        ("localhost:70000", "the port is no number"),
        ("::1:80", "an IPv6 address must be in brackets"),
        ("https://localhost:80", "the scheme is not http"),
    ] {
        let end = ask(host);
        end.assert(2, what);
        assert!(end.stderr.contains("localhost:8080"), "{}", end.stderr);
    }
    // The listen address must resolve as well.
    let nowhere = "no-such-host.invalid:0";
    let words = ["--plain-http", "--no-servers"];
    matchmaker(&net, nowhere, &words).assert(2, "the host has no address");
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("localhost:{}", busy.local_addr().unwrap().port());
    let end = matchmaker(&net, &host, &words);
    end.assert(4, "is in use by another program");
}

#[test]
fn errors_are_objects_with_json() {
    let net = Net::new();
    let missing = net.path("no.pem");
    let run = error_object;
    let path = missing.to_str().unwrap();
    for words in [
        ["key", "public", "--json", path],
        ["key", "show", "--json", path],
    ] {
        let object = run(&words);
        assert_eq!(
            (&object["code"], &object["file"]),
            (&2.into(), &path.into())
        );
    }
    let there = net.key("hub");
    let there = there.to_str().unwrap();
    let object = run(&["key", "new", there, "--json"]);
    assert_eq!(
        (&object["code"], &object["file"]),
        (&4.into(), &there.into())
    );
    let object = run(&["admin", "check", path, "--json"]);
    assert_eq!(
        (&object["code"], &object["file"]),
        (&2.into(), &path.into())
    );
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let free = free.to_string();
    let object = run(&["matchmaker", "status", "--json", "--http", &free]);
    assert_eq!(
        (&object["code"], &object["file"]),
        (&3.into(), &Value::Null)
    );
    // An invalid command line.
    let object = run(&["matchmaker", "status", "--json", "--http", "localhost"]);
    let field = object["field"].as_str().unwrap();
    assert!(object["code"] == 2 && field.contains("--http"), "{object}");
    let object = run(&["matchmaker", "status", "--json"]);
    assert_eq!(object["code"], 2);
}

#[test]
fn errors_of_documents_have_line_and_field_in_json() {
    let net = Net::new();
    let documents = [
        (
            "type.json",
            "{\n\"network\": \"n\",\n\"version\": \"7\"\n}",
            3,
            "version",
        ),
        ("whole.json", "{\n\"network\": \"n\"", 2, ""),
    ];
    for (name, text, line, field) in documents {
        write(&net, name, text);
        let path = net.path(name);
        let path = path.to_str().unwrap();
        let object = error_object(&["admin", "check", path, "--json"]);
        assert_eq!(
            (&object["code"], &object["file"], &object["line"]),
            (&2.into(), &path.into(), &line.into())
        );
        let named = object["field"].as_str().unwrap_or_default();
        assert_eq!(named, field, "{object}");
    }
}

/// Runs a command that fails; returns its stderr as JSON.
fn error_object(words: &[&str]) -> Value {
    let end = End::of(tickwire().args(words));
    let object: Value = serde_json::from_str(&end.stderr).expect(&end.stderr);
    assert_eq!(object["schema"], 1, "{object}");
    assert_eq!(object["code"], end.code, "{object}");
    assert!(!object["message"].as_str().unwrap().is_empty(), "{object}");
    for name in ["file", "line", "field"] {
        assert!(object.get(name).is_some(), "{object}");
    }
    assert_eq!(end.stdout, "");
    object
}

fn matchmaker(net: &Net, http: &str, rest: &[&str]) -> End {
    let mut command = tickwire();
    command
        .args([
            "matchmaker",
            "run",
            "--app-id",
            "1",
            "--http",
            http,
            "--identity",
        ])
        .arg(net.key("matchmaker"))
        .arg("--join-file")
        .arg(net.join_path())
        .args(rest);
    End::of(&mut command)
}

fn write(net: &Net, name: &str, text: &str) {
    std::fs::write(net.path(name), text).unwrap();
    #[cfg(unix)]
    chmod(net, name);
}

#[cfg(unix)]
fn chmod(net: &Net, name: &str) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(net.path(name), mode).unwrap();
}

/// Result of a command.
struct End {
    code: i32,
    stdout: String,
    stderr: String,
}

impl End {
    fn of(command: &mut Command) -> Self {
        Self::with_log(command, "off")
    }

    fn with_log(command: &mut Command, filter: &str) -> Self {
        let output = command.env("TICKWIRE_LOG", filter).output().unwrap();
        Self {
            code: output.status.code().expect("it ends by itself"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Asserts this exit status and a one-sentence message that contains `needle`, without debug
    /// output.
    fn assert(&self, code: i32, needle: &str) {
        let Self { stderr, .. } = self;
        assert_eq!(self.code, code, "{stderr}");
        assert!(stderr.contains(needle), "{stderr}");
        assert!(
            !stderr.contains("panicked") && !stderr.contains("backtrace"),
            "{stderr}"
        );
    }
}
