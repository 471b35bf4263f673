//! Whether a program can be run, before it is needed.

use std::env;
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Component, Path, PathBuf};

use crate::exit::Failure;

/// Finds the program as the system does when it is started.
///
/// # Errors
///
/// One sentence that names it: it is not there, no file, or not executable.
pub(super) fn check(program: &Path) -> Result<(), Failure> {
    let why = |error: &Error| Failure::file(program, format_args!("the game server: {error}"));
    if !is_searched(program) {
        return check_file(program).map_err(|error| why(&error));
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut found = env::split_paths(&folders).map(|folder| check_file(&folder.join(program)));
    if found.any(|of| of.is_ok()) {
        return Ok(());
    }
    let sentence =
        "the game server: no such program in PATH; a file stands with its folder, such as";
    let example = Path::new(".").join(program);
    Err(Failure::file(
        program,
        format_args!("{sentence} {}", example.display()),
    ))
}

/// Whether it is looked for in the folders of `PATH`: it has no folder of its own.
fn is_searched(program: &Path) -> bool {
    let mut parts = program.components();
    matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    )
}

fn check_file(path: &Path) -> Result<(), Error> {
    let mut path = PathBuf::from(path);
    if !path.exists() && path.extension().is_none() {
        path.set_extension(env::consts::EXE_EXTENSION);
    }
    let metadata = fs::metadata(&path)?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111 == 0 {
        return Err(Error::new(
            ErrorKind::PermissionDenied,
            "the file is not executable; chmod +x it",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_program_is_found_as_the_system_finds_it() {
        assert_eq!(check(&env::current_exe().unwrap()), Ok(()));
        #[cfg(unix)]
        assert_eq!(check(Path::new("sh")), Ok(()));
        let folder = env::temp_dir();
        for (path, sentence) in [
            (Path::new("no-such-game-server"), "no such program in PATH"),
            (Path::new("./no-such-game-server"), "No such file"),
            (&folder, "directory"),
        ] {
            let failure = check(path).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.sentence.contains(sentence), "{failure}");
            assert_eq!(failure.file.as_deref(), Some(path));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_may_not_be_run_is_named() {
        let name = format!("tickwire-program-{}", std::process::id());
        let path = env::temp_dir().join(name);
        fs::write(&path, "").unwrap();
        let failure = check(&path).unwrap_err();
        fs::remove_file(&path).unwrap();
        assert!(failure.sentence.contains("chmod +x"), "{failure}");
    }
}
