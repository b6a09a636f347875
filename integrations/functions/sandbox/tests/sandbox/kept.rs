//! Modules that are kept.

use std::fs;
use std::time::Duration;

use dipc_sandbox::{Bound, Error, Limits, Modules, ModulesOptions, Options, Running, Sandbox};

use crate::support::{Wat, call, numbers, sandbox};

/// A module that differs from those of other numbers.
fn numbered(number: u32) -> Vec<u8> {
    let fields = format!("(global i32 (i32.const {number}))");
    Wat {
        fields,
        ..Wat::default()
    }
    .bytes()
}

#[test]
fn handles_move_between_threads() {
    fn shared<T: Send + Sync>() {}
    fn moved<T: Send>() {}
    shared::<Sandbox>();
    shared::<dipc_sandbox::Module>();
    shared::<Modules>();
    shared::<Error>();
    moved::<Running>();
}

#[test]
fn the_hash_is_that_of_the_bytes() {
    let module = sandbox()
        .compile(&wat::parse_str(Wat::default().text()).unwrap())
        .unwrap();
    let modules = Modules::new(sandbox(), ModulesOptions::default()).unwrap();
    assert!(modules.get(&module.hash()).unwrap().is_none());
    assert_eq!(
        modules.insert(&Wat::default().bytes()).unwrap().hash(),
        module.hash()
    );
    assert_eq!(
        modules.get(&module.hash()).unwrap().unwrap().hash(),
        module.hash()
    );
}

#[test]
fn the_module_that_was_not_used_for_longest_goes_first() {
    let options = ModulesOptions {
        count: 2,
        ..ModulesOptions::default()
    };
    let modules = Modules::new(sandbox(), options).unwrap();
    let [a, b, c] = [1, 2, 3].map(numbered);
    let a = modules.insert(&a).unwrap();
    let b = modules.insert(&b).unwrap();
    assert!(modules.get(&a.hash()).unwrap().is_some());
    let c = modules.insert(&c).unwrap();
    assert!(modules.get(&a.hash()).unwrap().is_some());
    assert!(modules.get(&b.hash()).unwrap().is_none());
    assert!(modules.get(&c.hash()).unwrap().is_some());
    // A module that went still runs.
    let batch = numbers(vec![1]);
    assert_eq!(call(&b, &batch, &Limits::default()).unwrap(), [batch]);
}

#[test]
fn a_module_for_which_there_is_no_room_at_all_is_refused() {
    for (count, bytes, bound) in [
        (64, 1000, Bound::KeptBytes),
        (0, 1 << 30, Bound::KeptModules),
    ] {
        let options = ModulesOptions {
            count,
            bytes,
            ..ModulesOptions::default()
        };
        let modules = Modules::new(sandbox(), options).unwrap();
        let error = modules.insert(&numbered(1)).unwrap_err();
        assert!(
            matches!(error, Error::Limit { bound: it, .. } if it == bound),
            "{error}"
        );
    }
}

#[test]
fn modules_in_memory_are_bounded_in_bytes() {
    let size = sandbox().compile(&numbered(1)).unwrap().size_bytes();
    let options = ModulesOptions {
        bytes: size * 2 + size / 2,
        ..ModulesOptions::default()
    };
    let modules = Modules::new(sandbox(), options).unwrap();
    let kept: Vec<_> = (1..=4)
        .map(|number| modules.insert(&numbered(number)).unwrap().hash())
        .collect();
    let left = kept
        .iter()
        .filter(|hash| modules.get(hash).unwrap().is_some())
        .count();
    assert_eq!(left, 2);
}

#[test]
fn a_folder_outlives_the_process_and_its_files_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("modules");
    let options = ModulesOptions {
        folder: Some(path.clone()),
        ..ModulesOptions::default()
    };
    let open = || Modules::new(sandbox(), options.clone()).unwrap();
    let hash = open().insert(&numbered(1)).unwrap().hash();
    let module = open()
        .get(&hash)
        .unwrap()
        .expect("the module of the folder");
    let batch = numbers(vec![1]);
    assert_eq!(call(&module, &batch, &Limits::default()).unwrap(), [batch]);

    let files: Vec<_> = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 1);
    // Another module under this module's name is none.
    fs::write(&files[0], numbered(2)).unwrap();
    assert!(open().get(&hash).unwrap().is_none());
    fs::write(&files[0], vec![0; 100 << 20]).unwrap();
    assert!(open().get(&hash).unwrap().is_none());
    // It is mended when the module comes again.
    open().insert(&numbered(1)).unwrap();
    assert!(open().get(&hash).unwrap().is_some());
}

#[test]
fn threads_may_insert_the_same_module_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let options = ModulesOptions {
        folder: Some(folder.path().into()),
        ..ModulesOptions::default()
    };
    let modules = Modules::new(sandbox(), options).unwrap();
    let wasm = numbered(1);
    let barrier = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                barrier.wait();
                modules.insert(&wasm).unwrap();
            });
        }
    });
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_folder_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let length = numbered(1).len() as u64;
    let options = ModulesOptions {
        folder: Some(folder.path().into()),
        folder_bytes: 2 * length,
        ..ModulesOptions::default()
    };
    let modules = Modules::new(sandbox(), options).unwrap();
    let mut last = [0; 32];
    for number in 1..=5 {
        last = modules.insert(&numbered(number)).unwrap().hash();
        // Files are told apart by their times. Each is made an hour older than the next one.
        for file in fs::read_dir(folder.path()).unwrap() {
            let file = fs::File::open(file.unwrap().path()).unwrap();
            let time = file.metadata().unwrap().modified().unwrap();
            file.set_modified(time - Duration::from_secs(3600)).unwrap();
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    let options = ModulesOptions {
        folder: Some(folder.path().into()),
        ..ModulesOptions::default()
    };
    let modules = Modules::new(sandbox(), options).unwrap();
    assert!(modules.get(&last).unwrap().is_some());
}

#[test]
fn a_folder_that_cannot_be_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let options = ModulesOptions {
        folder: Some(file.join("in")),
        ..ModulesOptions::default()
    };
    assert!(matches!(
        Modules::new(sandbox(), options),
        Err(Error::Folder { .. })
    ));
}

#[test]
fn compiled_code_is_kept_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let compile = || {
        let code_folder = Some(folder.path().to_owned());
        let sandbox = Sandbox::new(Options {
            code_folder,
            ..Options::default()
        })
        .unwrap();
        let batch = numbers(vec![1, 2]);
        let module = sandbox.compile(&numbered(1)).unwrap();
        assert_eq!(call(&module, &batch, &Limits::default()).unwrap(), [batch]);
    };
    compile();
    assert!(fs::read_dir(folder.path()).unwrap().count() > 0);
    compile();
}
