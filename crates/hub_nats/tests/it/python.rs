//! A client in another language reads the log: `nats-py`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{NatsBackend, Server, append_op, limits, mails_in};

/// The client's release in Python's registry.
const CLIENT: &str = "nats-py==2.16.0";

/// Returns the Python of an environment with the client, which is created below `target`; or why
/// there is none.
fn python() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nats-py");
    let python = folder.join("bin/python");
    if !run(Command::new(&python).args(["-c", "import nats"])).is_ok_and(|text| text.is_empty()) {
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let pip = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ];
        run(Command::new(&python).args(pip).arg(CLIENT))?;
    }
    Ok(python)
}

/// Returns what the command prints.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}", text.trim_end()))
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

#[test]
#[ignore = "needs nats-server, python3"]
fn hub_9_a_client_in_python_reads_what_the_hub_has_written() {
    let python = match python() {
        Ok(python) => python,
        Err(reason) => {
            eprintln!("not run, since {CLIENT} cannot be installed: {reason}");
            return;
        }
    };
    let server = Server::start("");
    let config = server.config();
    let mut backend = NatsBackend::open(&config, limits());
    let epoch = backend.join(1);
    let mut expected = Vec::new();
    for seq in 1..=50_u64 {
        let body = format!("mail {seq}").into_bytes();
        assert!(backend.run(append_op(epoch, seq, seq % 3, &body)).is_ok());
        expected.push((seq % 3, body));
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/read_log.py");
    let printed = run(Command::new(python).arg(script).arg(server.url())).unwrap();
    let mut found = Vec::new();
    for line in printed.lines() {
        let [subject, place, data] = line.split(';').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        found.extend(mails_in(subject, place, &unhex(data)));
    }
    assert_eq!(found, expected);
}
