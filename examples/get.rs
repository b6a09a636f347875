//! Gets it: the second program of docs/quick-start.md.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = dipc::Client::new()?;
    for batch in client.get("shm:@quick-start", "numbers")? {
        println!("{} rows", batch?.num_rows());
    }
    Ok(())
}
