-- Orders that change. Of a hundred changes 70 are inserts, 25 updates and 5 deletes, in transactions of 10 to 100.
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    customer_id int NOT NULL,
    status text NOT NULL,
    amount numeric(12, 2) NOT NULL,
    quantity int NOT NULL,
    paid boolean NOT NULL,
    note text,
    placed_at timestamptz NOT NULL
) WITH (autovacuum_enabled = off);
CREATE PUBLICATION bench FOR TABLE orders;

-- Rows of ids from "first" to "next" are there.
CREATE PROCEDURE change(events int) LANGUAGE plpgsql AS $$
DECLARE
    done int := 0; size int; "first" bigint := 0; "next" bigint := 0; at bigint;
    inserts int; updates int; updated int := 0; deletes int; deleted int := 0;
BEGIN
    PERFORM setseed(0.5);
    WHILE done < events LOOP
        size := least(10 + floor(random() * 91)::int, events - done);
        done := done + size;
        updates := done / 4 - updated;
        updated := updated + updates;
        deletes := done / 20 - deleted;
        deleted := deleted + deletes;
        inserts := size - updates - deletes;
        INSERT INTO orders SELECT id, floor(random() * 100000), 'placed', floor(random() * 100000) / 100,
            1 + floor(random() * 9), random() < 0.5, repeat('a note ', floor(random() * 6)::int), clock_timestamp()
            FROM generate_series("next", "next" + inserts - 1) AS id;
        "next" := "next" + inserts;
        at := "first" + floor(random() * ("next" - "first" - updates));
        UPDATE orders SET status = 'shipped', paid = true WHERE id BETWEEN at AND at + updates - 1;
        DELETE FROM orders WHERE id BETWEEN "first" AND "first" + deletes - 1;
        "first" := "first" + deletes;
        COMMIT;
    END LOOP;
END
$$;

-- The slot of which each reader gets a copy.
SELECT pg_create_logical_replication_slot('bench_base', 'pgoutput');
