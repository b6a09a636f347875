//! Parts of a table, one at a time.

use dipc::{Client, Endpoint, Error, GetOptions, Result, Status};
use futures::TryStreamExt as _;

use crate::serving::Serving;
use crate::table;

const NOBODY: &str = "shm:@dipc-api-nobody";

/// The rows of a part, as both forms of the call have them.
fn rows(uri: &str, part: &Endpoint, options: &GetOptions) -> Result<usize> {
    let client = Client::new()?;
    let mut waited = 0;
    let got = client.get_part(uri, part, options).map(|mut reader| {
        while let Some(batch) = reader.next_batch().unwrap() {
            waited += batch.num_rows();
        }
        waited
    });
    let task = futures::executor::block_on(async {
        let reader = client.get_part_async(uri, part, options).await?;
        let batches: Vec<_> = reader.try_collect().await?;
        Ok::<_, Error>(batches.iter().map(|batch| batch.num_rows()).sum())
    });
    let told = |result: &Result<usize>| result.clone().map_err(|error| error.text().to_owned());
    assert_eq!(told(&got), told(&task));
    got
}

/// Promise of `Client::get_part`: the part comes from its first server that answers.
#[test]
fn parts_come_from_their_servers() {
    for server in Serving::all() {
        let all: usize = table(3).iter().map(|batch| batch.num_rows()).sum();
        let (part, options) = (Endpoint::new("published"), GetOptions::new());
        assert_eq!(rows(&server.uri, &part, &options), Ok(all));
        let part = part.uri(NOBODY).uri(&server.uri);
        assert_eq!(rows(NOBODY, &part, &options), Ok(all));

        // An answer is an answer.
        let part = Endpoint::new("nothing").uri(&server.uri).uri(NOBODY);
        let error = rows(&server.uri, &part, &options).unwrap_err();
        assert_eq!(error.status(), Status::NotFound);
        assert!(error.text().starts_with("the part `nothing`: "), "{error}");
    }
    let part = Endpoint::new("published").uri(NOBODY);
    let error = rows(NOBODY, &part, &GetOptions::new()).unwrap_err();
    assert_eq!(error.status(), Status::Unreachable);
    let text = format!("the part `published`: at {NOBODY}: ");
    assert!(error.text().starts_with(&text), "{error}");
}

/// Promise of `Client::get_part`: servers that only the description names learn no secret, and do
/// not come near this process's memory.
#[test]
fn parts_lead_nowhere_worse() {
    for server in Serving::all() {
        let options = GetOptions::new()
            .header("authorization", "Bearer x")
            .unwrap();
        let part = Endpoint::new("published");
        let error = rows(&server.uri, &part, &options).unwrap_err();
        assert_eq!(error.status(), Status::Permission, "{error}");
        let part = part.uri(&server.uri);
        assert!(rows(&server.uri, &part, &options).is_ok());

        let part = Endpoint::new("published").uri("ucx://127.0.0.1:1");
        let error = rows(&server.uri, &part, &GetOptions::new()).unwrap_err();
        assert_eq!(error.status(), Status::Permission);
        assert!(error.text().contains("trusted_network"), "{error}");
    }
}
